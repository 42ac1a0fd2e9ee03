"""The files that the stage writes."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.report import report
from pipeline_src.study.settled import TABLE
from tests.unit.report.conftest import RUN, write_costs


def test_report_writes_scores_and_confusion_tables(results):
    report.run()
    lines = (results / "scores.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        "score\tsplit\tmetric\tvalue\tmajority_baseline",
        "RTE, accuracy (synthetic)\tdev.tsv\taccuracy\t80.0000\t50.0000",
    ]
    lines = (results / "confusion.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "score\tactual\tpredicted\tshare\tcount"
    assert "RTE (synthetic)\t0\t1\t0.0698\t3" in lines and not any("SQUAD" in line for line in lines)


def test_confusion_plot_template_uses_columns_of_table(root):
    template = read_json(root / ".dvc" / "plots" / "confusion_shares.json")
    fields = set(re.findall(r'"field": "(\w+)"', json.dumps(template))) - {"rev"}  # DVC's own
    assert fields == set(report.CONFUSION_COLUMNS)


def test_report_does_not_import_torch_or_beam(results, root):
    """Importing torch or Beam would take longer than the whole command."""
    shutil.copy(root / "workflow/presets/sample.yaml", results.parent / "params.yaml")
    program = (
        "import sys; from pipeline_src.__main__ import main; status = main(['report'])\n"
        "heavy = {'torch', 'transformers', 'pandas', 'apache_beam'} & set(sys.modules)\n"
        "sys.exit(status or ' '.join(heavy) or 0)"
    )
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONPATH": str(root)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (results / "report.html").exists()


def test_report_with_missing_result_fails_and_keeps_old_report(results):
    report.run()
    (results / "corpus.json").unlink()
    old = (results / "report.html").read_bytes()
    with pytest.raises(PipelineError, match="corpus.json"):
        report.run()
    assert (results / "report.html").read_bytes() == old


def test_report_of_equal_results_has_equal_bytes(results):
    """So that `make study` leaves dvc.lock as it was committed."""
    runs = []
    for seconds in (10.0, 77.0):
        write_costs(results, seconds=seconds)
        write_json(results.parent / "logs/tokenize/all.run.json", RUN | {"seconds": seconds})
        report.run(price=seconds)
        files = {path.name: path.read_bytes() for path in results.iterdir() if path.is_file()}
        runs.append((files.pop("run.html"), files))
    assert runs[0][1] == runs[1][1] and runs[0][0] != runs[1][0]


def test_report_writes_files_tracked_by_git_after_dvc_restores_them(results, monkeypatch):
    write_table, old = report._write_table, b"of the last commit"

    def put_back():
        time.sleep(0.3)
        (results / "summary.json").write_bytes(old)
        (results.parent / TABLE).write_text("{}")

    thread = threading.Thread(target=put_back)

    def list_workspace(path, *content):
        write_table(path, *content)
        if path.name == "confusion.tsv":
            TABLE.parent.mkdir(parents=True)
            TABLE.write_text(json.dumps({"write": {"workspace": {}}}))
            thread.start()

    monkeypatch.setattr(report, "_write_table", list_workspace)
    report.run()
    thread.join()
    assert (results / "summary.json").read_bytes() != old
