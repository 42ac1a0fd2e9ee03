"""What a user may get wrong, from the command line inwards: one error with its hint, status 2, and no traceback."""

import copy
import os
import random
import re
from pathlib import Path

import pytest
import yaml

from pipeline_src import __main__ as command
from pipeline_src import stages
from pipeline_src.__main__ import STATUSES, WIDTH
from pipeline_src.common.errors import PipelineError
from pipeline_src.config.study import check_study
from pipeline_src.tools.preset import preset_text

NOTHING_DONE = [  # in a folder where no stage has run
    "clean --source wikipedia", "clean --source books", "train_tokenizer", "tokenize", "build_examples",
    "corpus_statistics", "train_word_vectors", "pretrain --phase phase1",
    "pretrain --phase phase2", "pretrain --phase medium", "finetune --task rte --seed 1",
    "finetune --task nope --seed 1", "finetune --task rte --seed x", "evaluate", "report", "corpus-stats", "results",
    "show-examples", "show-examples --example 7", "show-examples --count -3", "export new --format parquet",
    "export new --format hub", "fill-mask text", "fill-mask [MASK]",
    "interpret", "attention text", "inspect page.html",
]  # fmt: skip
NO_SUCH_THING = [
    "download --source nope", "download --source ../x", "clean --source ../x",
    "clean --source a/b",
    "plan --preset nope", "plan --gpus -1", "plan --gpus 1", "plan --cores 0",
    "preset", "preset nope", "preset ../x", "export folder --format parquet",
    "export empty --format hub", "import nope new",
    "ablations --only nope", "import folder folder",
    "import empty new", "import bytes new", "import folder new", "import wrong new", "fill-mask [MASK] --top 0",
    *(f"{tool} --model {model}" for tool in ("fill-mask [MASK]", "export new --format sentence-transformers")
      for model in ("nope", "empty", "bytes", "folder", "wrong")),
]  # fmt: skip
NO_SUCH_OPTION = [
    "", "bogus", "--bogus", "tokenize extra", "tokenize --x", "clean", "clean --source",
    "finetune --task rte",
    "preset --list --x", "show-examples --phase x", "show-examples --count x", "show-examples --split x",
    "export", "export new --format x",
    "plan --teraflops x", "plan --gpus x", "import", "import folder", "fill-mask [MASK] --top x",
    "export new --format hub --pooling x", "table x", "doctor --x", "doctor x",
]  # fmt: skip
VALUES = [None, "x", "", -1, 0, 1e300, float("nan"), float("inf"), True, [], [[]], {}, ["x", "x"], 10**30, "1e-5"]
BROKEN = [
    b"", b"\t", b"seed: [1", b"seed: 1\n\tx: 2", b"- 1", b"seed", b"\xff\xfe\x00", b"\x00", b"a: &a [*a]", b"a: *b",
    b"seed: 2026-13-45", b"seed: " + b"9" * 5000, b"[" * 3000, b"seed: !!python/name:os.system", b"a: 1\n" * 3,
    b"? [1]\n: 2", b"1: 2",
]  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch, root):
    """A folder with a study that has not been run, and things to name by mistake."""
    (tmp_path / "params.yaml").write_text(preset_text("test", root / "workflow/presets"))
    for folder, config in {"folder": "[]", "wrong": '{"vocab_size": "x"'}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(config)
        (tmp_path / folder / "vocab.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(place: Path) -> set[Path]:
    """All files but logs."""
    return {path for path in place.rglob("*") if path.is_file() and "logs" not in path.parts}


def said(words: str, capsys) -> tuple[int | str | None, str]:
    """Exit status and what went to stderr."""
    try:
        status = command.main(words.split())
    except SystemExit as stop:
        status = stop.code
    return status, capsys.readouterr().err


@pytest.mark.parametrize("words", NOTHING_DONE + NO_SUCH_THING)
def test_a_mistake_is_one_error_with_a_remedy(place, capsys, words):
    before = files(place)
    status, shown = said(words, capsys)
    assert status == 2 and "Traceback" not in shown
    assert shown.count("error: ") == 1 and re.search(r"^  hint: \S", shown, re.MULTILINE), shown
    assert files(place) == before  # nothing half-made


def test_words_that_are_not_utf_8(capsys):
    assert command.main(["fill-mask", os.fsdecode(b"caf\xe9")]) == 2
    assert r"error: not text in UTF-8: 'caf\udce9'" in capsys.readouterr().err


@pytest.mark.parametrize("words", NO_SUCH_OPTION)
def test_a_wrong_command_line_shows_the_usage(place, capsys, words):
    status, shown = said(words, capsys)
    assert status == 2 and shown.startswith("usage: python -m pipeline_src")


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_file_that_is_no_study(place, capsys, number):
    (place / "params.yaml").write_bytes(BROKEN[number])
    status, shown = said("tokenize", capsys)
    assert status == 2 and "params.yaml" in shown and "hint: " in shown


def test_no_file_or_a_folder_in_its_place(place, capsys):
    (place / "params.yaml").unlink()
    assert said("tokenize", capsys)[0] == 2
    (place / "params.yaml").mkdir()
    status, shown = said("tokenize", capsys)
    assert status == 2 and "a folder where a file belongs: params.yaml" in shown


def leaves(value, path=()):
    """Every key of a study, by its path."""
    for key, inner in value.items():
        yield (*path, key)
        if isinstance(inner, dict):
            yield from leaves(inner, (*path, key))


def test_any_value_in_any_place_is_taken_or_refused(root):
    study = yaml.safe_load((root / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))
    refused = 0
    for path in leaves(study):
        for value in [*VALUES, VALUES]:
            changed = copy.deepcopy(study)
            block = changed
            for key in path[:-1]:
                block = block[key]
            block[path[-1]] = value
            try:
                check_study(changed)
            except PipelineError as error:
                refused += 1
                assert error.hint and error.value
    assert refused > 500


def test_lines_lost_doubled_or_cut_are_taken_or_refused(place, capsys, monkeypatch):
    monkeypatch.setitem(command.STAGES, "tokenize", stages.Stage("pipeline_src.tools.preset", ""))
    monkeypatch.setattr("pipeline_src.tools.preset.run", lambda: None, raising=False)
    lines = (place / "params.yaml").read_text().splitlines(keepends=True)
    rng = random.Random(1)
    seen = set()
    for _ in range(60):
        spoilt, at = list(lines), rng.randrange(len(lines))
        spoilt[at] = rng.choice(["", spoilt[at] * 2, spoilt[at][: len(spoilt[at]) // 2], f" {spoilt[at]}", "x: 1\n"])
        (place / "params.yaml").write_text("".join(spoilt))
        status, shown = said("tokenize", capsys)
        assert status in (0, 2) and (status == 0) == ("hint" not in shown)
        seen.add(status)
    assert seen == {0, 2}


@pytest.mark.parametrize("text", ["kind: [1", "kind", "- kind", "1", "kind: nothing", ""])
def test_a_task_of_ones_own_written_wrongly(place, catalogue, capsys, text):
    (catalogue / "tasks/mine.yaml").write_text(text)
    params = place / "params.yaml"
    params.write_text(params.read_text().replace("\ntasks:\n", "\ntasks:\n- mine\n"))
    status, shown = said("tokenize", capsys)
    assert status == 2 and "mine" in shown and "hint: " in shown


def test_the_systems_errors(place, capsys, monkeypatch):
    assert said("attention text --output empty/page.html --model nope", capsys)[0] == 2

    def fail(error):
        def main(_):
            raise error

        monkeypatch.setattr("pipeline_src.tools.preset.main", main)
        return said("preset", capsys)

    assert "no permission: a" in fail(PermissionError(13, "Permission denied", "a"))[1]
    assert "a package is not installed: pydantic" in fail(ModuleNotFoundError("", name="pydantic.fields"))[1]
    for bug in (ModuleNotFoundError("", name="pipeline_src.nothing"), OSError(5, "input/output error"), KeyError("a")):
        with pytest.raises(type(bug)):
            fail(bug)


def test_help_is_grouped_and_fits_a_terminal(capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0 and all(len(line) <= WIDTH for line in shown.splitlines())
    places = [shown.index(title) for title in ("\nstages", "\ntools", "\nexit status")]
    assert places == sorted(places)
    for name in command.STAGES:
        assert re.search(rf"^  {name} +\S", shown[places[0] : places[1]], re.MULTILINE)
    for name in command.TOOLS:
        assert re.search(rf"^  {name} +\S", shown[places[1] : places[2]], re.MULTILINE)
    for status in STATUSES:
        assert re.search(rf"^  {status} +\S", shown[places[2] :], re.MULTILINE)


def test_exit_statuses_are_documented(root):
    text = Path(root, "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert {int(found) for found in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == set(STATUSES)
