"""Names from outside that become paths, commands and table cells."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import checksum, write_json
from pipeline_src.base.names import as_text, check_file_name, check_name, check_path, checked_path, shown
from pipeline_src.base.paths import EXAMPLES, RESULTS, TOKENS, VOCABULARY
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.examples.corpus_statistics import corpus_statistics
from pipeline_src.model import hub
from pipeline_src.report import table
from pipeline_src.report.experiments import WORKSPACE, Experiment, Folders, read_experiment
from pipeline_src.report.results import read_results
from pipeline_src.sources.catalogue import SourceFile
from pipeline_src.study.data import CorpusParams, ExamplesParams, Lengths, WikipediaParams
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.task_spec import EvalSetSpec, TaskSpec
from pipeline_src.tasks import feature_cache
from pipeline_src.text.documents import slice_shards
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

SCORE = {"title": "Mine", "file": "dev.tsv", "metrics": ["accuracy"]}
TASK = {"name": "mine", "kind": "classification", "columns": {"texts": [1], "label": 2}, "labels": ["a", "b"]}
HOSTILE = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[A-Za-z0-9/.;$`'\"| -]{1,12}", fullmatch=True),
    st.lists(st.sampled_from(["..", ".", "", "a", "-rf", "~", "a.tsv"]), max_size=4).map("/".join),
)


@given(text=HOSTILE)
@settings(max_examples=200)
def test_check_name_accepted_name_is_safe_in_path_and_shell(text: str) -> None:
    try:
        check_name(text)
    except ValueError as error:
        assert str(error).isprintable()
        return
    assert shlex.quote(text) == text and Path(text).name == text and text[0] != "-"


@given(text=HOSTILE)
@settings(max_examples=200)
def test_check_path_accepted_path_stays_below_its_folder(text: str) -> None:
    for check in (check_path, check_file_name):
        try:
            check(text)
        except ValueError as error:
            assert str(error).isprintable()
            continue
        inside = (Path("/folder") / text).resolve()
        assert inside.is_relative_to("/folder") and inside != Path("/folder")
        assert check is check_path or inside.parent == Path("/folder")


@given(text=HOSTILE)
@settings(max_examples=60)
def test_names_in_study_and_catalogue_are_validated(text: str) -> None:
    table = {
        check_name: [
            lambda: WikipediaParams(entry="x", parts=(text,)),
            lambda: WikipediaParams(entry=text, parts=("a",)),
            lambda: CorpusParams(sources={text: WikipediaParams(entry="x")}),
            lambda: FinetuneParams(per_task={text: {}}),
            lambda: TaskSpec.model_validate(TASK | {"scores": {text: SCORE}}),
        ],
        check_path: [
            lambda: TaskSpec.model_validate(TASK | {"train": text, "scores": {"mine": SCORE}}),
            lambda: EvalSetSpec.model_validate(SCORE | {"file": text}),
            lambda: EvalSetSpec.model_validate(SCORE | {"test": {"file": text, "submit": "a.tsv"}}),
            lambda: SourceFile(path=text, url="https://a.example/a"),
            lambda: SourceFile(path="a.zip", url="https://a.example/a", unpack={text: "a"}),
        ],
        check_file_name: [lambda: EvalSetSpec.model_validate(SCORE | {"test": {"file": "a.tsv", "submit": text}})],
    }
    for check, uses in table.items():
        for use in uses:
            assert accepts(use) == accepts(lambda check=check: check(text)), (check, text)


def accepts(call: Callable[[], object]) -> bool:
    try:
        call()
    except ValueError:  # of which pydantic's is a subclass
        return False
    return True


@pytest.mark.parametrize("seed", [-1, "1; touch x", " 1", "1_0", "01", True, 1.5, 2**31, "../1"])
def test_finetune_seed_that_is_no_plain_number_is_rejected(seed: object) -> None:
    with pytest.raises(ValidationError):
        FinetuneParams(seeds=(seed,))
    assert FinetuneParams(seeds=("2", 1)).seeds == (2, 1)
    with pytest.raises(ValidationError, match="listed twice; list it once"):
        FinetuneParams(seeds=(1, "1"))


def test_dvc_yaml_commands_have_no_unquoted_values(root: Path) -> None:
    """DVC quotes values only of ``${item}``, a mapping; a shell does not expand variables twice."""
    for name, stage in yaml.safe_load((root / "dvc.yaml").read_text())["stages"].items():
        command = stage.get("do", stage)["cmd"]
        for known in ("${item}", "$LAUNCH", '"$DVC_STAGE"'):
            command = command.replace(known, "")
        assert "$" not in command, name


def test_shown_escapes_control_codes_and_truncates() -> None:
    assert shown("\x1b[31mred") == r"'\x1b[31mred'"
    assert shown("ü") == "'ü'" and len(shown("a" * 5000)) < 120


@given(st.text(max_size=40))
@settings(max_examples=60)
def test_as_text_any_text_stays_in_one_table_cell(text: str) -> None:
    cell = as_text(f"{text}<script>|\x1b[1m")
    assert "<" not in cell and cell.isprintable() and not re.search(r"(?<!\\)\|", cell)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("![x](http://a)", r"![x\](http://a)"),
        ("[x](javascript:alert(1))", r"[x\](javascript:alert(1))"),
        ("[x][1] [1]: http://a", r"[x\][1] [1\]: http://a"),
        # an even number of backslashes escapes nothing that follows
        (r"[x\](http://a)", r"[x\\\](http://a)"),
        ("[500, 1000] [UNK] a[0] (b)", "[500, 1000] [UNK] a[0] (b)"),
    ],
)
def test_as_text_links_and_images_are_escaped(text: str, cell: str) -> None:
    assert as_text(text) == cell


def read_shards() -> None:
    shard = {"name": OUTSIDE, "documents": 1, "words": 1, "bytes": 1, "sha256": ""}
    write_json("manifest.json", {"documents": 1, "words": 1, "bytes": 1, "dropped": {}, "shards": [shard]})
    slice_shards(".")


def read_weights() -> None:
    # a folder, of which pathlib says that it is the name of a file
    write_json("model.safetensors.index.json", {"weight_map": {"a": ".."}})
    hub._read_files(Path("."))


def read_result_phases() -> None:
    write_json("scores.json", {"rows": []})
    write_json("corpus.json", {"examples": {OUTSIDE: {}}})
    read_results(Path("."))


def read_result_tasks() -> None:
    write_json("scores.json", {"rows": [{"task": OUTSIDE}]})
    write_json("corpus.json", {"examples": {}})
    read_results(Path("."))


def read_last_phase() -> None:
    write_json(RESULTS / "scores.json", {"rows": []})
    write_json(RESULTS / "corpus.json", {"examples": {OUTSIDE: {}}})
    table.main(argparse.Namespace())


def read_example_phases() -> None:
    write_json(TOKENS / "manifest.json", {"dropped": {}, "parts": {"train": {}, "validation": {}}})
    save_tokenizer(VOCABULARY, [*SPECIAL_TOKENS, "a"], lowercase=True)
    write_json(EXAMPLES / "manifest.json", {f"phase/{OUTSIDE}": {}})
    corpus_statistics([], [])


def read_shares() -> None:
    parts = {split: {OUTSIDE: {"documents": 1, "tokens": 1}} for split in ("train", "validation")}
    write_json(TOKENS / "manifest.json", {"marks": {"single": 2, "pair": 3}, "parts": parts})
    lengths = Lengths(phase1=32, phase2=32)
    build_examples(seed=1, examples=ExamplesParams(max_seq_length=lengths, temperature=0.7))


def read_experiment_scores() -> None:
    row = {"task": OUTSIDE, "eval_set": "a", "metric": "accuracy", "majority_baseline": 1, "examples": 1, "main": True}
    row |= {"title": "A", "file": "a", "values": [1], "mean": 1, "deviation": 0, "best": 1, "random_weights": 1}
    write_json(RESULTS / "scores.json", {"rows": [row], "rules": []})
    write_json(RESULTS / "summary.json", {})
    write_json("params.yaml", {})
    read_experiment(WORKSPACE)


OUTSIDE = "../outside"
READERS = [
    *(read_shards, read_weights, read_result_phases, read_result_tasks, read_last_phase, read_example_phases),
    *(read_shares, read_experiment_scores),
]


@pytest.mark.parametrize("read", READERS)
def test_record_with_path_outside_its_folder_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[], None]
) -> None:
    (tmp_path / "study").mkdir()
    monkeypatch.chdir(tmp_path / "study")
    with pytest.raises(
        PipelineError, match=r"path leads outside its folder: '\S*\.\./outside'|invalid index of weight"
    ):
        read()
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_experiment_seed_that_is_a_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Folders(Experiment("a", {}, [], {"finetune.seeds": [OUTSIDE]}), tmp_path)


def test_feature_cache_ignores_array_outside_its_folder(project: Path) -> None:
    np.save("outside.npy", np.zeros(1))
    write_json("entry/about.json", {"layout": "Features", "sums": {OUTSIDE: checksum(Path("outside.npy"))}})
    assert not feature_cache._is_complete(Path("entry"))


@pytest.mark.parametrize("path", ["a", "a/b.txt", "(1) Zoë's.txt", "-x", ".hidden", "hub:a", "a..b"])
def test_checked_path_of_own_file_is_accepted(path: str) -> None:
    assert checked_path(path, "here") == path


@pytest.mark.parametrize(
    "path", ["\x1b[2J", "", ".", "..", "/a", "a/../b", "a/..", "a//b", "a/", "./a", "a\0", None, 1, ["a"]]
)
def test_checked_path_that_leaves_its_folder_is_rejected(path: object) -> None:
    with pytest.raises(PipelineError, match="path leads outside its folder"):
        checked_path(path, "here")
