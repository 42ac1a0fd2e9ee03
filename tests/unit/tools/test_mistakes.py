"""Mistakes of users at the command line: one error with a hint, status 2, no traceback."""

import copy
import errno
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline_src import __main__ as command
from pipeline_src.__main__ import STATUSES, WIDTH
from pipeline_src.base.errors import PipelineError
from pipeline_src.study.study import check_study
from tests.studies import write_params

# In a folder where no stage has run.
NOTHING_DONE = """\
clean --source wikipedia
clean --source books
train_tokenizer
tokenize
build_examples
corpus_statistics
train_word_vectors
pretrain --phase phase1
pretrain --phase phase2
pretrain --phase medium
finetune --task rte --seed 1
finetune --task nope --seed 1
finetune --task rte --seed x
evaluate
report
corpus-stats
results
show-examples
show-examples --phase x
export new --format parquet
export new --format sentence-transformers
fill-mask text
fill-mask [MASK]
interpret
attention text
inspect page.html
predict rte bytes
predict nope bytes"""
NO_SUCH_THING = """\
download --source nope
download --source ../x
clean --source ../x
clean --source a/b
plan --preset nope
plan --gpus -1
preset
preset ../x
export folder --format parquet
export new --format sentence-transformers --model nope
export new --format sentence-transformers --model wrong
import nope new
import folder folder
import empty new
import bytes new
import folder new
import wrong new
ablations --only nope
fill-mask [MASK] --top 0
fill-mask [MASK] --model nope
fill-mask [MASK] --model empty
fill-mask [MASK] --model bytes
fill-mask [MASK] --model folder
fill-mask [MASK] --model wrong
predict rte bytes --model nope
predict rte bytes --model wrong"""
NO_SUCH_OPTION = """\
bogus
--bogus
tokenize extra
tokenize --x
clean
clean --source
finetune --task rte
preset --list --x
show-examples --count x
export
export new --format x
import folder
doctor --x
doctor x"""
VALUES = [None, "x", -1, 1e300, float("nan"), True, [[]], {}, ["x", "x"], 10**30]
BROKEN = [
    *(b"", b"\t", b"seed: [1", b"- 1", b"seed", b"\xff\xfe\x00", b"\x00", b"a: &a [*a]", b"a: *b", b"seed: 2026-13-45"),
    *(b"seed: " + b"9" * 5000, b"[" * 3000, b"seed: !!python/name:os.system", b"a: 1\n" * 3, b"? [1]\n: 2", b"1: 2"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch, root):
    """A study that has not been run, and files and folders to name by mistake."""
    write_params(tmp_path)
    for name, config in {"folder": "[]", "wrong": '{"vocab_size": "x"'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
        (tmp_path / name / "vocab.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> set[Path]:
    """All files but logs."""
    return {path for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts}


def run_command(words: str, capsys) -> tuple[int | str | None, str]:
    """Exit status and stderr."""
    try:
        status = command.main(words.split())
    except SystemExit as stop:
        status = stop.code
    return status, capsys.readouterr().err


@pytest.mark.parametrize("words", [*NOTHING_DONE.splitlines(), *NO_SUCH_THING.splitlines()])
def test_command_mistake_is_one_error_with_hint(folder, capsys, words):
    before = files(folder)
    status, stderr = run_command(words, capsys)
    assert status == 2 and "Traceback" not in stderr
    assert stderr.count("error: ") == 1 and re.search(r"^  hint: \S", stderr, re.MULTILINE), stderr
    assert files(folder) == before


def test_command_argument_not_utf_8_is_rejected(capsys):
    assert command.main(["fill-mask", os.fsdecode(b"caf\xe9")]) == 2
    assert r"error: argument is not UTF-8: 'caf\udce9'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["", *NO_SUCH_OPTION.splitlines()])
def test_command_wrong_options_print_usage(folder, capsys, words):
    status, stderr = run_command(words, capsys)
    assert status == 2 and stderr.startswith("usage: python -m pipeline_src")


def test_command_text_without_quotes_prints_usage_of_its_command(folder, capsys):
    _, stderr = run_command("fill-mask The house", capsys)
    assert "pipeline_src fill-mask [-h]" in stderr and stderr.endswith("goes in quotes\n")


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_params_broken_file_is_rejected(folder, capsys, content):
    (folder / "params.yaml").write_bytes(content)
    status, stderr = run_command("tokenize", capsys)
    assert status == 2 and "params.yaml" in stderr and "hint: " in stderr


def test_params_yaml_that_is_missing_or_a_folder_is_rejected(folder, capsys):
    (folder / "params.yaml").unlink()
    assert run_command("tokenize", capsys)[0] == 2
    (folder / "params.yaml").mkdir()
    status, stderr = run_command("tokenize", capsys)
    assert status == 2 and "expected a file, found a folder: params.yaml" in stderr


def leaves(value, path=()):
    """Every key of a study, by its path."""
    for key, inner in value.items():
        yield (*path, key)
        if isinstance(inner, dict):
            yield from leaves(inner, (*path, key))


def test_check_study_any_value_of_any_key_is_accepted_or_rejected(root):
    study = yaml.safe_load((root / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))
    rejected = 0
    for path in leaves(study):
        for value in VALUES:
            changed = copy.deepcopy(study)
            block = changed
            for key in path[:-1]:
                block = block[key]
            block[path[-1]] = value
            try:
                check_study(changed)
            except PipelineError as error:
                rejected += 1
                assert error.hint and error.value
    assert rejected > 500


@pytest.mark.parametrize("text", ["kind: [1", "kind", "- kind", "1", "kind: nothing", ""])
def test_custom_task_broken_file_is_rejected(folder, catalogue, capsys, text):
    (catalogue / "tasks/mine.yaml").write_text(text)
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("\ntasks:\n", "\ntasks:\n- mine\n"))
    status, stderr = run_command("tokenize", capsys)
    assert status == 2 and "mine" in stderr and "hint: " in stderr


def test_command_system_error_is_explained_and_bug_is_raised(folder, capsys, monkeypatch):
    assert run_command("attention text --output empty/page.html --model nope", capsys)[0] == 2

    def fail(error):
        def main(_):
            raise error

        monkeypatch.setattr("pipeline_src.study.preset.main", main)
        return run_command("preset", capsys)

    assert "no permission: a" in fail(PermissionError(13, "Permission denied", "a"))[1]
    assert "a package is not installed: pydantic" in fail(ModuleNotFoundError("", name="pydantic.fields"))[1]
    for bug in (ModuleNotFoundError("", name="pipeline_src.nothing"), OSError(5, "input/output error"), KeyError("a")):
        with pytest.raises(type(bug)):
            fail(bug)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on the disk: to/it's.txt\n"),
        (PermissionError(errno.EACCES, "Permission denied", "from/it's.txt"), "no permission: from/it's.txt\n"),
        (PermissionError(errno.EACCES, "Permission denied", "from/a"), "no permission: from/a\n"),
        (OSError(errno.EIO, "Input/output error", "from/a"), None),
    ],
)
def test_explain_failed_folder_copy_is_pipeline_error(tmp_path, monkeypatch, error, expected):
    monkeypatch.chdir(tmp_path)
    Path("from").mkdir()
    Path("from/it's.txt").touch()

    def fail(source, target):
        raise error

    with pytest.raises(shutil.Error) as caught:
        shutil.copytree("from", "to", copy_function=fail)
    explained = command.explain(caught.value)
    assert explained is None if expected is None else str(explained).startswith(expected)


def test_explain_other_shutil_error_is_a_bug():
    assert command.explain(shutil.Error("Destination path 'a' already exists")) is None
    assert command.explain(shutil.SameFileError("a and b are the same file")) is None


def test_help_lists_all_commands_within_width(capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["--help"])
    stderr = capsys.readouterr().out
    assert stop.value.code == 0 and all(len(line) <= WIDTH for line in stderr.splitlines())
    _, *groups = re.split(r"^(?:stages|tools|exit status)\b.*:$", stderr, flags=re.MULTILINE)
    for names, group in zip((command.STAGES, command.TOOLS, STATUSES), groups, strict=True):
        assert all(re.search(rf"^  {name} +\S", group, re.MULTILINE) for name in names)


def test_exit_statuses_equal_the_documented_ones(root):
    text = Path(root, "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert {int(status) for status in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == set(STATUSES)
