"""Names from outside that become paths, commands and table cells."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline_src.common.names import as_text, check_file_name, check_name, check_path, shown
from pipeline_src.config.data import CorpusParams, WikipediaParams
from pipeline_src.config.finetune import FinetuneParams
from pipeline_src.download.catalogue import SourceFile
from pipeline_src.tasks.spec import EvalSetSpec, TaskSpec

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
def test_names_of_study_and_catalogue_are_checked(text: str) -> None:
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
def test_finetune_seed_not_a_plain_number_is_rejected(seed: object) -> None:
    with pytest.raises(ValidationError):
        FinetuneParams(seeds=(seed,))
    assert FinetuneParams(seeds=("2", 1)).seeds == (2, 1)
    with pytest.raises(ValidationError, match="listed once"):
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
def test_as_text_any_text_is_one_table_cell(text: str) -> None:
    cell = as_text(f"{text}<script>|\x1b[1m")
    assert "<" not in cell and cell.isprintable() and not re.search(r"(?<!\\)\|", cell)
