"""Pages made to hang a cleaner: CPU seconds of the worst, which must stay linear in the page's length.

No peer runs beside: wikiextractor and mwparserfromhell need minutes for several of these, or give up.
"""

from __future__ import annotations

import json
import sys

from benchmarks.material import sample_articles
from benchmarks.measure import time_once
from pipeline_src.corpus.wikitext import clean

RUN = 20_000  # openers in a row
NESTED = 5_000
LARGE = 50_000_000  # characters
MOST, MOST_LARGE = 0.1, 5.0  # CPU seconds
OPENERS = (
    "<ref>", "<ref ", "<ref name=a>", "<REF>", "{|", "\n{|", "{{{", "{{", "{{a", "{{a|", "[[", "[[a|", "[", "<!--",
    "[http", "[http://a.b ", "<div", "<div ", "<div>", "((", "( ,", "(", "<math>", "<math>{", "<math>\\frac</math>",
    "(<math>\\frac</math>", "<math>a</math>. ", "<math>a", "<code>a", "<nowiki>", "<nowiki/>", "'''", "''", "''a",
    "'", "l'''a", "==", "\n==", "=", "\n=", "\n== References ==", "\n== a ==", "&lt;", "&", "&#", "&amp;", "[[File:",
    "[[File:a|", "[[a:", "{{convert|", "{{IPA|a}}", "({{IPA|a}}", "{{quote|", "{{Bio|", "{{nowrap|", "\n*", "\n;",
    "\n:", "\n ", "\n", " ", "  ", "\t", ", ", ",", ";", "; ,", "..", "a..", ". ", "a. ", " .", '"" ', '"', "<li>",
    "<sub>", "<sup>", "<br>", "<", ">", "</", "<!", "<!-", "</ref", "x <hiero>a</hiero>. X", "<gallery>", "<pre>",
    "__", "__A", "x~", "|", "{", "-", "mailto:", "//", "https://a", "\ue000", "\ue001", "\ue000(", "Mr. ", "ä", "İ",
)  # fmt: skip
CLOSERS = ("}}", "}", "]]", "]", "|}", "-->", "</ref>", "</math>", "))", ")", "/>", "|}}", "}}}")


def pages() -> dict[str, str]:
    """The hostile pages by name, without the large ones."""
    return {
        **{opener: opener * RUN for opener in OPENERS + CLOSERS},
        "nested templates": "{{nowrap|a " * NESTED + "}}" * NESTED,
        "nested unknown templates": "{{a|" * NESTED + "}}" * NESTED,
        "nested parameters": "{{{a|" * NESTED + "}}}" * NESTED,
        "nested links": "[[a|" * NESTED + "]]" * NESTED,
        "nested files": "[[File:a|" * NESTED + "]]" * NESTED,
        "nested tables": "\n{|\n|\n" * NESTED + "\n|}" * NESTED,
        "links in templates": "{{a [[b " * RUN + "}}" * RUN,
        "templates in links": "[[a {{b " * RUN + "]]" * RUN,
        "one long line": "The river runs north. " * RUN,
        "one long sentence": "the river runs north and " * RUN,
        "one long word": "a" * RUN * 10,
        "one broken sentence": "the river <math>\\frac</math> runs " * RUN,
        "references in comments": "<!-- <ref> " * RUN + "--> </ref>" * RUN,
        "list lines": "\n* The river runs north." * RUN,
        "leads": "\n\nThe rivers of the north are these:\n* a" * RUN,
        "headings": "\n== See also ==\n=== a ===\n" * RUN,
    }


def large_pages() -> dict[str, str]:
    """Two pages of 50 MB: real articles one after another, and runs of every hostile kind."""
    real = "\n\n".join(page.text for page in sample_articles()[1])
    runs = "".join(pages().values())
    return {
        "50 MB of articles": (real * (LARGE // len(real) + 1))[:LARGE],
        "50 MB of hostile runs": (runs * (LARGE // len(runs) + 1))[:LARGE],
    }


def main() -> None:
    """Clean every page once, print the slowest and the large ones, then the result as JSON."""
    seconds = {name: time_once(lambda page=page: clean(page)) for name, page in pages().items()}
    large = {name: time_once(lambda page=page: clean(page)) for name, page in large_pages().items()}
    slowest = sorted(seconds, key=lambda name: -seconds[name])
    for name in slowest[:5]:
        print(f"  {name.encode('unicode_escape').decode():<28} {seconds[name]:8.3f} s, target {MOST:g}")
    for name, took in large.items():
        print(f"  {name:<28} {took:8.3f} s, target {MOST_LARGE:g}")
    worst = slowest[0]
    print(
        json.dumps(
            {
                "name": "hostile",
                "ours": round(seconds[worst], 4),
                "peer": None,
                "ratio": None,
                "target": MOST,
                "unit": "CPU seconds of the slowest page, less is better",
                "met": seconds[worst] <= MOST and max(large.values()) <= MOST_LARGE,
                "worst": worst,
                "pages": len(seconds),
                "large": {name: round(took, 3) for name, took in large.items()},
                "target_large": MOST_LARGE,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
