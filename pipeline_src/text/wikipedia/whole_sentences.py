"""Tell whole sentences from labels, titles and sentences that were cut off."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.text.sentences import CLOSERS, OPENERS, is_small, split_sentences
from pipeline_src.text.words import DENSE_LETTERS, DENSE_WEIGHT

# Minimum number of characters in a line of prose. Shorter lines are captions, labels and parts of tables.
MIN_LENGTH = 25
# Minimum number of characters in a list item that counts as a sentence, in scripts without capitals. About eight words.
MIN_ITEM_LENGTH = 45
# Minimum number of words in a sentence without a full stop.
MIN_WORDS = 8
# Minimum number of lower-case words in a sentence without a full stop. Most titles and labels have fewer.
MIN_LOWERCASE_WORDS = 6
# These marks may also end an abbreviation or stand inside a sentence.
ABBREVIATING = ".!?…"
# Full stops, question and exclamation marks of other scripts on Wikipedia. They only ever end a sentence.
ENDS = "。！？．｡؟۔؞։।॥።፧፨၊။។៕།༎᠃᠉߹꓿᱾᱿꯫෴܀܁܂"
FULL_STOPS = frozenset(ABBREVIATING + ENDS)
COMPLETE = FULL_STOPS | frozenset(CLOSERS)
SENTENCE_MARKS = (*FULL_STOPS, ":")
# A text that ends in one of these is not a complete sentence.
UNENDED = frozenset(",;:–—-/([&+=")
# Maximum number of closing marks after a full stop.
MAX_CLOSERS = 4

_SENTENCE_END = re.compile(rf"(?: |[{ENDS}][{re.escape(CLOSERS)}]*)\Z")
_DENSE = re.compile(f"[{DENSE_LETTERS}\u3001-\u30ff\uac00-\ud7a3\uff01-\uff9f]")
# An apostrophe between two words: dell'uomo
_ELIDED = re.compile(r"(?<=\w)['’](?=\w{3})")
_WORDS = re.compile(r"\w+")
# A label and its explanation: "Cortex: the outer layer of the brain.", "Cortex – the outer layer of the brain."
_LABEL = re.compile(r".{1,60}?(?: [–—-]+ |[:：](?!\d)|— )")
_SECOND_CLAUSE = re.compile(
    r"""(?:^|[,;]\ )(?:although|but|though|whereas|while|aber|denn|obgleich|obwohl|sondern|während|aunque|mientras|pero|
    sino|mais|puisque|quoique|tandis|benché|ma|mentre|poiché|sebbene)\b""",
    re.IGNORECASE | re.VERBOSE,
)


@cache
def words_of(language: str) -> dict[str, frozenset[str]]:
    # Return the kind -> words of a language in whole_sentences.yaml. Empty for a language that is not listed.
    tables = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    table = tables.get(language.partition("-")[0], {})
    return {kind: frozenset(words.split()) for kind, words in table.items()}


def split_exactly(paragraph: str, language: str) -> list[str]:
    # Split a paragraph so that the sentences, joined, are the paragraph. A mark of ABBREVIATING ends a sentence only
    # before a space, so "T.U.A." stays in one sentence.
    sentences: list[str] = []
    done = 0
    for sentence in split_sentences(paragraph, language):
        start = paragraph.find(sentence, done)
        if start > done and _SENTENCE_END.search(paragraph, max(done, start - MAX_CLOSERS - 1), start):
            sentences.append(paragraph[done:start])
            done = start
    return [*sentences, paragraph[done:]]


# Cached, since the function may be called twice for the same paragraph.
@lru_cache(64)
def lacks_only_its_stop(text: str, language: str) -> bool:
    """Return whether a text without a full stop ends in a complete sentence.

    The sentence must be longer than a title, and must not end in a word that rarely ends a sentence. Always False for a
    language for which no such words are listed.
    """
    unfinished = words_of(language).get("unfinished")
    if unfinished is None or text[-1:] in UNENDED or text.count(" ") < MIN_LOWERCASE_WORDS:
        return False
    # Look up the word after an apostrophe: "una" in "dell'una".
    if text[text.rfind(" ") + 1 :].lower().rpartition("'")[2] in unfinished:
        return False
    sentence = text
    if any(stop in text for stop in SENTENCE_MARKS):
        sentence = split_exactly(text, language)[-1]
    return sentence[:1].isupper() and _is_long(sentence)


def begins_with_sentence(text: str, language: str) -> bool:
    """Return whether a text begins with a whole sentence and ends in a full stop.

    A sentence begins with a capital. If the verbs of the language are listed, it needs a verb before any relative
    clause, so ``A wheel, which is made of wood.`` is not a sentence. In a script without capitals, only the length and
    the full stop are checked.
    """
    if text.rstrip(CLOSERS)[-1:] not in FULL_STOPS:
        return False
    sentence = split_sentences(text, language)[0]
    first = sentence.lstrip(OPENERS)[:1]
    if not first.isalpha() or is_small(first) or _LABEL.match(sentence):
        return False
    if first.title() == first.lower():
        return not is_short(sentence, MIN_ITEM_LENGTH)
    return _is_long(sentence) and _has_verb(sentence, language)


def says_something(lead_in: str, language: str) -> bool:
    # A sentence that ends in a colon says something by itself if it has a second clause: "Three died in prison, while
    # the others were freed:"
    return _SECOND_CLAUSE.search(lead_in) is not None and lacks_only_its_stop(lead_in[:-1], language)


def _has_verb(sentence: str, language: str) -> bool:
    table = words_of(language)
    if not table.get("verbs"):
        return True
    first, *words = _WORDS.findall(sentence.lower())
    known = table["verbs"] | table["relatives"] | table["subordinates"]
    first_known = next((word for word in words if word in known), "")
    return first_known in table["verbs"] and first not in table["relatives"]


def _is_long(sentence: str) -> bool:
    # Return whether a sentence has more words than a label or title, and fewer capitals.
    words = _ELIDED.sub("' ", sentence).split()
    initials = [word[0] for word in words]
    num_small, num_capitals = sum(map(str.islower, initials)), sum(map(str.isupper, initials))
    return len(words) >= MIN_WORDS and num_small >= MIN_LOWERCASE_WORDS and 2 * num_capitals <= len(words)


def is_short(text: str, limit: int = MIN_LENGTH) -> bool:
    if len(text) >= limit:
        return False
    return text.isascii() or len(text) + (DENSE_WEIGHT - 1) * len(_DENSE.findall(text)) < limit
