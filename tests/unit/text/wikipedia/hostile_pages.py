"""Pages made to hang a cleaner: long runs of every mark of wikitext, deep nests, and text without an end.

20,000 times ``[http://a.b `` keeps wikiextractor and mwparserfromhell busy for longer than 15 s, 20,000 times ``<!--``
for 7 s and 4 s.
"""

from __future__ import annotations

RUN = 20_000  # openers in a row
OPENERS = (
    "<ref>", "<ref ", "<ref name=a>", "<REF>", "{|", "\n{|", "{{{", "{{", "{{a", "{{a|", "[[", "[[a|", "[", "<!--",
    "[http", "[http://a.b ", "<div", "<div ", "<div>", "((", "( ,", "(", "<math>", "<math>{", "<math>\\frac</math>",
    "(<math>\\frac</math>", "<math>a</math>. ", "<math>a", "<code>a", "<nowiki>", "<nowiki/>", "'''", "''", "''a",
    "'", "l'''a", "==", "\n==", "=", "\n=", "\n== References ==", "\n== a ==", "&lt;", "&", "&#", "&amp;", "[[File:",
    "[[File:a|", "[[a:", "{{convert|", "{{IPA|a}}", "({{IPA|a}}", "{{quote|", "{{Bio|", "{{nowrap|", "\n*", "\n;",
    "\n:", "\n ", "\n", " ", "  ", "\t", ", ", ",", ";", "; ,", "..", "a..", ". ", "a. ", " .", '"" ', '"', "<li>",
    "<sub>", "<sup>", "<br>", "<", ">", "</", "<!", "<!-", "</ref", "x <hiero>a</hiero>. X", "<gallery>", "<pre>",
    "__", "__A", "x~", "|", "{", "-", "mailto:", "//", "https://a", "\ue000", "\ue001", "\ue000(", "Mr. ", "ä", "İ",
    "{{x}}", ".{{x}}", "a.{{x}} ", "({{x}}", "{{x\n}}", "{{cn}}", "({{cn}}", "a{{cn}}", "[[:a:", "\ue002",
    "\ue003", "\ue004", "\ue005",
    '<span style="display:none">', "<s>", "<s>a</s>", "<i hidden>", "<ref a<ref>", "<ref a", "x<sup>n</sup>",
    "x<sub>n</sub>", "https://a(", "https://a,", "[http://a.b [a] ", "[http://a'", "。。", "<gallery>a</gallery>",
    "\n; a : b. ", "\U000f0000\ue000", "<p>", "{{convert|1|to|", "1.e4 e5 ",
)  # fmt: skip
CLOSERS = ("}}", "}", "]]", "]", "|}", "-->", "</ref>", "</math>", "))", ")", "/>", "|}}", "}}}")


def pages(run: int = RUN) -> dict[str, str]:
    """Return the hostile pages by name; their length is proportional to ``run``."""
    nested = run // 4
    return {
        **{opener: opener * run for opener in OPENERS + CLOSERS},
        "nested templates": "{{nowrap|a " * nested + "}}" * nested,
        "nested unknown templates": "{{a|" * nested + "}}" * nested,
        "nested parameters": "{{{a|" * nested + "}}}" * nested,
        "nested links": "[[a|" * nested + "]]" * nested,
        "nested files": "[[File:a|" * nested + "]]" * nested,
        "nested tables": "\n{|\n|\n" * nested + "\n|}" * nested,
        "links in templates": "{{a [[b " * run + "}}" * run,
        "templates in links": "[[a {{b " * run + "]]" * run,
        "many tables": "{|" * 10 * run,
        "many tables after colons": (":" * 20 + "{|") * run,
        "many unknown templates": "".join(f"a {{{{x{number}}}}} " for number in range(run // 2)),
        "a template of many arguments": "They say {{nowrap|" + "1=a|" * run + "}} here.",
        "a long number": "They say {{convert|" + "9" * run + "|km}} here.",
        "one long line": "The river runs north. " * run,
        "one long sentence": "the river runs north and " * run,
        "one long word": "a" * run * 10,
        "one broken sentence": "the river <math>\\frac</math> runs " * nested,
        "references in comments": "<!-- <ref> " * run + "--> </ref>" * run,
        "list lines": "\n* The river runs north." * run,
        "leads": "\n\nThe rivers of the north are these:\n* a" * nested,
        "formulas on lines of their own": "It is given by\n:<math>a</math>,\nwhere b is\n" * nested,
        "many formulas": "".join(f"a <math>\\frac{{x_{number}}}{{\\sqrt{{b}}}}</math> " for number in range(nested)),
        "sentences without a stop": "The people of the towns around skate on the river in winter\n* a\n" * nested,
        "headings": "\n== See also ==\n=== a ===\n" * run,
    }
