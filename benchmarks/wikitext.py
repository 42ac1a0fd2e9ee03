"""Cleaning wikitext beside two peers: articles per CPU-second, and how good the prose is that comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields

from benchmarks._cleaners import escaped, tfds, wikiextractor
from benchmarks._prose_quality import Quality, judge, read_truth
from benchmarks.material import sample_articles
from benchmarks.measure import race, report
from pipeline_src.text.wikipedia.wikitext import clean

LABELS = {
    "markup_per_mb": "markup remains per MB",
    "non_prose_percent": "non-prose, % of characters",
    "headings": "headings kept",
    "holes_per_mb": "holes per MB",
    "missing_per_mb": "words missing in a sentence per MB",
    "ngrams_lost_percent": "5-grams of prose lost, %",
    "paragraphs_lost_percent": "paragraphs lost, %",
    "lead_ins_too_percent": "  with lead-ins and formulas, %",
}
LIMITS = {
    "markup_per_mb": 0.0,
    "non_prose_percent": 1.0,
    "headings": 0,
    "missing_per_mb": 0.5,
    "ngrams_lost_percent": 0.4,
    "paragraphs_lost_percent": 0.1,
}


def main() -> None:
    site, pages = sample_articles()
    texts = [page.text for page in pages]
    # The peer's own reader hands on the XML's escapes.
    as_dumped = [escaped(text) for text in texts]
    sides: dict[str, Callable[[], list[str]]] = {
        "ours": lambda: [clean(text, site) for text in texts],
        "wikiextractor": lambda: [wikiextractor(text) for text in as_dumped],
        "TFDS / HF wikipedia": lambda: [tfds(text) for text in texts],
    }
    truths = [read_truth(text) for text in texts]
    quality = {name: judge(truths, side())[0] for name, side in sides.items()}
    _print_table(quality)
    seconds = race(sides, rounds=3)
    rates = {name: len(texts) / took for name, took in seconds.items()}
    ours = asdict(quality["ours"])
    report(
        "wikitext",
        "articles per CPU-second",
        rates.pop("ours"),
        rates,
        {"wikiextractor": 3, "TFDS / HF wikipedia": 20},
        **{key: round(value, 3) for key, value in ours.items()},
        limit=LIMITS,
        articles=len(texts),
        met_more=all(ours[key] <= limit for key, limit in LIMITS.items()),
    )


def _print_table(quality: dict[str, Quality]) -> None:
    print(f"{'':34}" + "".join(f"{name:>21}" for name in quality))
    for column in fields(Quality):
        values = (getattr(of_one, column.name) for of_one in quality.values())
        limit = f"  (at most {LIMITS[column.name]:g})" if column.name in LIMITS else ""
        print(f"{LABELS[column.name]:34}" + "".join(f"{value:>21,.2f}" for value in values) + limit)


if __name__ == "__main__":
    main()
