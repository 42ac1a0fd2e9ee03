"""MRPC in GLUE's layout: Microsoft's files cut into train, dev and test by GLUE's list of dev pairs."""

from __future__ import annotations

from pathlib import Path

from pipeline_src.common.errors import PipelineError

TRAIN, TEST, DEV_IDS = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv"
TEST_HEADER = "index\t#1 ID\t#2 ID\t#1 String\t#2 String"


def split_train(train: str, dev_ids: str) -> tuple[str, str]:
    """Split Microsoft's training file into GLUE's ``train.tsv`` and ``dev.tsv``, both with its header, in order.

    Args:
        train: a header and lines ``Quality, #1 ID, #2 ID, #1 String, #2 String``, tab-separated.
        dev_ids: lines ``#1 ID, #2 ID`` of the pairs that are dev.
    """
    wanted = {tuple(line.split("\t")) for line in dev_ids.splitlines()}
    header, *lines = _lines(train)
    dev = [line for line in lines if _pair(line, TRAIN) in wanted]
    if len(dev) != len(wanted):
        raise PipelineError(
            "dev pairs are missing", len(wanted) - len(dev), where=TRAIN, hint="fetch MRPC's files again"
        )
    kept = [line for line in lines if _pair(line, TRAIN) not in wanted]
    return _text([header, *kept]), _text([header, *dev])


def strip_test(test: str) -> str:
    """Return GLUE's ``test.tsv`` of Microsoft's test file, with an index instead of the label."""
    rows = [line.split("\t") for line in _lines(test)[1:] if _pair(line, TEST)]
    return _text([TEST_HEADER, *("\t".join([str(index), *row[1:]]) for index, row in enumerate(rows))])


def arrange(folder: Path) -> None:
    """Replace the three fetched files by train.tsv, dev.tsv and test.tsv.

    A folder without any of the three is unchanged: its catalogue entry has files that GLUE has cut already.
    """
    fetched = [name for name in (TRAIN, TEST, DEV_IDS) if (folder / name).exists()]
    if not fetched:
        return
    train, dev = split_train(_read(folder / TRAIN), _read(folder / DEV_IDS))
    for name, text in {"train.tsv": train, "dev.tsv": dev, "test.tsv": strip_test(_read(folder / TEST))}.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for name in (TRAIN, TEST, DEV_IDS):
        (folder / name).unlink()


def _pair(line: str, where: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 5:
        raise PipelineError(
            "a line of MRPC has not five columns", line[:80], where=where, hint="fetch MRPC's files again"
        )
    return columns[1], columns[2]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PipelineError(
            "a file of MRPC is missing", path.name, where="the catalogue's entry mrpc",
            hint="name all three files there, or train.tsv and dev.tsv alone",
        ) from error  # fmt: skip


def _lines(text: str) -> list[str]:
    """Split only at line feeds: sentences may contain other characters at which str.splitlines would split."""
    return [line.removesuffix("\r") for line in text.split("\n") if line]


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
