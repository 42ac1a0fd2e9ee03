"""Close the gaps that removed markup leaves in and between sentences."""

from __future__ import annotations

import re

from pipeline_src.text.sentences import CLOSERS, OPENERS, is_small
from pipeline_src.text.wikipedia.markers import FORMULA, GONE, NAMES, PLACEHOLDER
from pipeline_src.text.wikipedia.prose import NOT_PROSE
from pipeline_src.text.wikipedia.whole_sentences import ABBREVIATING, COMPLETE, ENDS, FULL_STOPS

# One or more holes. The hole of a template has two characters: the number of its name, and PLACEHOLDER. The match
# starts at the first PLACEHOLDER, since a pattern that starts with a fixed character is several times faster.
_HOLES = re.compile(rf"{PLACEHOLDER}{GONE}*+(?>(?:{NAMES.pattern}?{PLACEHOLDER}{GONE}*+)*)")
_ENDED = re.compile(rf"(?:[^\W_]{{3}}[{ABBREVIATING}]|[{ENDS}])[{re.escape(CLOSERS)}{GONE}]*(?: *|{NAMES.pattern})\Z")
_FORMULA_LINE = re.compile(rf"[ \t:{GONE}]*{FORMULA}([^{FORMULA}]+){FORMULA}([.,;:]?)[ \t{GONE}]*")


def close_sentences(text: str) -> str:
    """Replace holes (marks of removed markup) between two sentences by GONE, which says that no words are lost.

    A hole directly after the full stop is replaced: ``It ended.{{x}} Then``. After a space, the hole of a template
    stays, because the template might have given the first words of the next sentence. A hole of a formula, code or
    music is replaced there too: ``It ended. <score>…</score> Then``.
    """
    out: list[str] = []
    done = 0
    for holes in _HOLES.finditer(text):
        start, end = holes.span()
        # If a word follows without a space, the hole is part of its sentence.
        if text[end : end + 1].strip():
            continue
        if not _ENDED.search(text, max(0, start - 13), start):
            continue
        following = text[end : end + 40].lstrip(f" \t\n{OPENERS}")[:1]
        if not (is_small(following) or following.isdecimal()):
            is_named = start > 0 and NAMES.match(text, start - 1) is not None
            out += (text[done : start - is_named], GONE)
            done = end
    return "".join(out) + text[done:]


def join_formulas(text: str) -> str:
    """Move a readable formula on its own line back into its sentence.

    The line before the formula must not end in a full stop. The line after the formula belongs to the sentence if it
    begins with a lower-case letter: ``It is given by`` / ``F = ma,`` / ``where m is the mass.``
    """
    # For each output line, the pieces to join.
    out: list[list[str]] = [[""]]
    # Number of blank lines since the last output line.
    blanks = 0
    # Number of formulas at the end of the last output line.
    joined = 0
    # Whether the last formula is indented (":"), so that it ends the paragraph unless a line continues its sentence.
    indented = False
    for line in text.split("\n"):
        if not line.strip(f" \t{GONE}"):
            blanks += 1
            continue
        before = out[-1][-1].rstrip(f" \t{GONE}")
        formula = _FORMULA_LINE.fullmatch(line) if FORMULA in line else None
        if formula and blanks < 2 and _leads_up(out[-1][0], before) and (not joined or before[-1] in ",;"):
            out[-1].append(formula[1].strip() + formula[2])
            joined, indented = joined + 1, ":" in line[: formula.start(1)]
        elif joined and blanks < 2 and _continues(line) and before[-1:] not in FULL_STOPS:
            out[-1].append(line)
            joined = 0
        else:
            out += [[""]] * blanks
            # Several formulas follow each other: none is part of a sentence, so drop those that were joined.
            if joined and line.lstrip()[:1] == ":":
                del out[-1][-joined:]
                out.append([":"])
            elif joined and indented and not blanks:
                out.append([""])
            out.append([line])
            joined = 0
        blanks = 0
    return "\n".join(" ".join(pieces) for pieces in out[1:]).replace(FORMULA, "")


def _leads_up(start: str, end: str) -> bool:
    start = start.lstrip(GONE)
    return start[:1] not in NOT_PROSE and start[:1] != " " and end[-1:] not in COMPLETE and end != ""


def _continues(line: str) -> bool:
    return line[:1] != " " and is_small(line.lstrip(GONE + FORMULA))
