"""Decode text files: UTF-8, UTF-16 and UTF-32 by byte order mark, or a detected legacy encoding.

An encoding that cannot be detected with confidence is an error, since a wrong guess corrupts a book silently.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from charset_normalizer import from_bytes

from pipeline_src.common.errors import PipelineError

_APOSTROPHES = frozenset("’ʼ´")
_CLOSERS = frozenset(",.;?!")
_BETWEEN_LETTERS = frozenset("’ʼ´·—–…\xa0\xad‐‑")  # don’t, col·lega
_OPENERS = frozenset("„‚¿¡")
_QUOTES = frozenset("“‘«»‹›")  # open in some languages and close in others
_AFTER_CEDILLA = frozenset("aouàáâãóôõúûøœ")
_NEVER = {"Cc", "Co", "Cn", "Cs", "Lm", "Sk"}  # controls, private, unknown, and spacing accents
_IDEOGRAPHS = "\u2e80"  # from here on, letters are next to punctuation without spaces
_BOXES = range(0x2500, 0x25A0)


def fraction_misread(text: str) -> float:
    """Return the fraction of non-ASCII characters that are implausible in their context, 0 if there are none.

    A wrong encoding puts capitals into lower-case words, quotation marks between letters and letters next to digits:
    ``cafŽ``, ``p‚re``, ``Ł4``. No language is assumed: code pages of one script are told apart by such signs alone.
    """
    positions = [match.start() for match in _NON_ASCII.finditer(text)]
    padded = f" {text} "
    return sum(_is_misread(padded, position + 1) for position in positions) / max(1, len(positions))


def _is_misread(text: str, position: int) -> bool:
    before, character, after = text[position - 1], text[position], text[position + 1]
    if character >= _IDEOGRAPHS:
        return character == "\ufffd" or unicodedata.category(character) in _NEVER
    category = unicodedata.category(character)
    if category in _NEVER and character not in _APOSTROPHES:
        return True
    if ord(character) in _BOXES or character in "\ufffdﬁﬂ":
        return True
    if category[0] == "L":
        begins_a_capital = after.isupper() and not before.isalpha() and text[position + 2 : position + 3].islower()
        if (character.isupper() and begins_a_capital) or (before in _CLOSERS and not after.isalpha()):
            return True  # ÒCome here,Ó instead of quotation marks
        return _is_misread_letter(before, character, after)
    if character in _OPENERS:
        return before.isalnum() or after.isspace()
    if character in _QUOTES and before.isspace() and after.isspace():
        return character in "“‘"  # not in « Oui »
    if before.isalpha() and after.isalpha():
        return character not in _BETWEEN_LETTERS
    return character == "£" and before.isalpha()


def _is_misread_letter(before: str, letter: str, after: str) -> bool:
    if before.isdigit() or after.isdigit():
        return True
    if letter == "ı":  # Turkish, whose code pages are not candidates
        return True
    if letter in "ƒªº":
        return before.isalpha() and after.isalpha()
    if letter == "ç" and after not in _AFTER_CEDILLA:
        return True
    if letter.isupper():
        return before.islower()
    if letter.islower() and after.isupper():
        return True
    return any(near.isalpha() and _script(near) != _script(letter) for near in (before, after))


def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").partition(" ")[0]


BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
# Candidates by script: if most letters are ASCII, only Latin ones.
WESTERN = ["cp1252", "mac_roman", "cp850", "cp437"]
LATIN = [*WESTERN, "cp1250", "iso8859_2", "cp852", "mac_latin2"]
NON_LATIN = [
    *("cp1251", "koi8_r", "iso8859_5", "cp866", "mac_cyrillic", "cp1253", "iso8859_7", "cp1255", "cp862"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
# Letters of the languages that Western encodings are for, and those that names bring into any of them. Read as cp1252,
# Hungarian, Romanian, Turkish and Baltic texts have letters that no one of these languages has together.
ALPHABETS = (
    *("äöüß", "àâæçèéêëîïôœùûüÿß", "áéíñóúü", "àèéìîòóù", "àáâãçéêíóôõú", "æøåéòôäö", "åäö", "äöåšž", "áðéíóúýþæö"),
    *("áðíóúýæø", "àçèéíïòóúü", "ëéïèöüêûôî", "äõöüšž", "ëç"),
)
OF_NAMES = "áäçèéíñóöü"
MAX_OUTSIDE = 0.02  # fraction of non-ASCII letters outside an alphabet
MAX_WESTERN = 0.01  # non-ASCII letters per ASCII letter in a Western language
MISREAD_TOLERANCE = 0.02  # above the fraction of misread characters of the best encoding
MAX_MISREAD = 0.1  # fraction of misread characters
MAX_FOREIGN = 0.5  # non-ASCII bytes per ASCII letter
SAMPLE_BYTES = 20_000  # of non-ASCII words, on which legacy encodings are compared
MIN_FOREIGN = 100  # non-ASCII bytes needed to tell one script from another
MAX_CHAOS, CHAOS_TOLERANCE, COHERENCE_LEAD = 0.35, 0.05, 0.1  # of charset-normalizer, 0 to 1
# Python's codecs that are no text encodings
NON_TEXT_CODECS = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "mbcs", "oem"}
HEADER_BYTES = 5_000  # in which Project Gutenberg's header names the encoding
BLOCK_SIZE = 1 << 20  # bytes read at a time from a streamed file

_FOREIGN_WORD = re.compile(rb"[^\x00-\x20]*[\x80-\xff][^\x00-\x20]*")
_ASCII_LETTER = re.compile(rb"[A-Za-z]")
_FOREIGN = re.compile(rb"[\x80-\xff]")
_TYPESET = re.compile(rb"[\x85\x91-\x97\xa0-\xff]*")  # punctuation of cp1252 that books use, and Latin-1
# Ά in iso8859_7, and at the start of a sentence in cp1253
_GREEK_SIGN = re.compile(rb"(\xb6[\xe1-\xfb]|[\xdc-\xfe]\xa2)|(?<=[.;!][ \n])\xa2[\xe1-\xfb]")
_DECLARED = re.compile(rb"^Character set encoding:[ \t]*([\w.-]{1,40})", re.I | re.M)
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_NON_ASCII = re.compile("[^\x00-\x7f]")


def check_encoding(declared: str | None) -> None:
    """Check that Python knows the encoding ``declared``."""
    try:
        if (declared or "utf-8").lower().replace("_", "-") in NON_TEXT_CODECS or "a".encode(declared or "utf-8") == b"":
            raise LookupError
        b"a".decode(declared or "utf-8", "replace")
    except (LookupError, ValueError):
        raise PipelineError(
            "no such encoding", declared, where="`encoding` of a source in params.yaml",
            hint="use a name that Python knows, such as utf-8, cp1252 or utf-16, or null to find it out",
        ) from None  # fmt: skip


def decode(data: bytes, path: Path, declared: str | None) -> tuple[str, str]:
    """Return the text of a whole file with ``\\n`` line ends, and the name of its encoding (``utf-8``, ``cp1252``)."""
    encoding = find_encoding(data, path, declared)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise _not_decoded(path, error.start, data[error.start], encoding, declared) from None
    if (nul := text.find("\0")) >= 0:
        raise _binary(path, len(text[:nul].encode(encoding)))
    return text.replace("\r\n", "\n").replace("\r", "\n"), name_of(encoding)


def decode_blocks(path: Path, encoding: str, declared: str | None, size: int = BLOCK_SIZE) -> Iterator[str]:
    """Yield the text of a file in blocks of ``size`` bytes."""
    decoder = codecs.getincrementaldecoder(encoding)()
    position = 0
    with open(path, "rb") as file:
        while True:
            block = file.read(size)
            start = position - len(decoder.getstate()[0])  # of a character that began in the last block
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise _not_decoded(path, start + error.start, byte, encoding, declared) from None
            if (nul := text.find("\0")) >= 0:
                raise _binary(path, start + len(text[:nul].encode(encoding)))
            yield text
            if not block:
                return
            position += len(block)


def find_encoding(data: bytes, path: Path, declared: str | None, complete: bool = True) -> str:
    """Detect the encoding of a file and return its name in Python's codecs.

    Args:
        data: the file, or its start unless ``complete``.
        declared: the source's ``encoding``; None to detect it.
    """
    if declared:
        return "utf-8-sig" if name_of(declared) == "utf-8" else declared
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=complete)
    except UnicodeDecodeError as error:
        if (nul := data.find(0)) >= 0:
            raise _binary(path, nul) from None
        return _legacy_encoding(data, path, error.start)
    return "utf-8"


def name_of(encoding: str) -> str:
    """Return the canonical name of an encoding."""
    return codecs.lookup(encoding.replace("-sig", "")).name


def _legacy_encoding(data: bytes, path: Path, offset: int) -> str:
    text = data.decode("utf-8", "surrogateescape")
    wrong = len(_UNDECODABLE.findall(text))
    if (right := len(_NON_ASCII.findall(text)) - wrong) > wrong:
        raise PipelineError(
            "damaged UTF-8", path,
            where=f"byte {offset:,} (0x{data[offset]:02x}); {wrong:,} wrong bytes, {right:,} right characters",
            hint=f"fetch it again, or drop wrong bytes: `iconv -c -f UTF-8 -t UTF-8 {path.name} > new{path.suffix}`",
        )  # fmt: skip
    foreign, letters = len(_FOREIGN.findall(data)), len(_ASCII_LETTER.findall(data))
    latin = foreign <= MAX_FOREIGN * letters
    sample = b" ".join(_FOREIGN_WORD.findall(data))[:SAMPLE_BYTES]
    candidates = LATIN if latin else NON_LATIN
    named = _declared_by_file(data)
    if named and (latin or named in NON_LATIN) and _plausible(sample, [named]):
        return named
    plausible = _plausible(sample, candidates)
    if {*plausible[:2]} == {"cp1253", "iso8859_7"} and len(signs := _GREEK_SIGN.findall(data)) > 2:
        share = sum(map(bool, signs)) / len(signs)
        if not 0.1 < share < 0.9:
            return "iso8859_7" if share >= 0.9 else "cp1253"
    same = len({sample.decode(name, "replace") for name in plausible}) == 1 and (latin or len(plausible) > 1)
    if same or (plausible and latin and _is_western(data, plausible[0], letters)):
        return plausible[0]
    if plausible and (latin or foreign >= MIN_FOREIGN) and (best := _most_like_a_language(sample, plausible, latin)):
        return best
    raise PipelineError(
        "the encoding of a file cannot be told", path,
        where=f"byte {offset:,} (0x{data[offset]:02x}) is not UTF-8; it may be {', '.join(plausible) or 'no text'}",
        hint=_hint(path, plausible[0] if plausible else "WINDOWS-1252"),
    )  # fmt: skip


def _declared_by_file(data: bytes) -> str | None:
    """Return the encoding that Project Gutenberg's header names, if it decodes; Latin-1 is read as cp1252."""
    match = _DECLARED.search(data[:HEADER_BYTES])
    if not match:
        return None
    try:
        name = codecs.lookup(match[1].decode("ascii")).name
        name = "cp1252" if name in ("iso8859-1", "ascii") else name.replace("-", "_")
        codecs.getincrementaldecoder(name)().decode(data)
    except (LookupError, ValueError, AssertionError, TypeError):
        return None
    return None if name.startswith("utf") else name


def _plausible(sample: bytes, candidates: list[str]) -> list[str]:
    """Return the candidates that misread the fewest characters, best first; none if all misread many."""
    misread = {name: fraction_misread(sample.decode(name, "replace")) for name in candidates}
    best = min(misread.values())
    good = [name for name, fraction in misread.items() if fraction <= best + MISREAD_TOLERANCE]
    return sorted(good, key=lambda name: round(misread[name], 2)) if best <= MAX_MISREAD else []


def _is_western(data: bytes, encoding: str, letters: int) -> bool:
    """Return whether a text has so few non-ASCII letters that its language must be Western."""
    foreign = b"".join(_FOREIGN.findall(data)).decode(encoding, "replace")
    return encoding in WESTERN and sum(map(str.isalpha, foreign)) <= MAX_WESTERN * letters


def _most_like_a_language(sample: bytes, names: list[str], latin: bool) -> str | None:
    matches = from_bytes(
        sample, steps=1, chunk_size=len(sample), threshold=MAX_CHAOS, cp_isolation=names,
        preemptive_behaviour=False, enable_fallback=False,
    )  # fmt: skip
    min_chaos = min((match.chaos for match in matches), default=0.0)
    good = [match for match in matches if match.chaos <= min_chaos + CHAOS_TOLERANCE]
    known = {name for match in good for name in match.could_be_from_charset}
    fits = {name for name in names if name in WESTERN and _fits_an_alphabet(sample.decode(name, "replace"))}
    if latin and "cp1252" in known & fits and _TYPESET.fullmatch(b"".join(_FOREIGN.findall(sample))):
        return "cp1252"  # by far the most frequent
    ranked = sorted(good, key=lambda match: -match.coherence)
    if not ranked or (len(ranked) > 1 and ranked[0].coherence < ranked[1].coherence + COHERENCE_LEAD):
        return None
    best = ranked[0].encoding
    if latin and ((best in WESTERN and best not in fits) or (best not in WESTERN and fits)):
        return None
    return best


def _fits_an_alphabet(text: str) -> bool:
    """Return whether the letters of a text are those of one Western language, a few names aside."""
    letters = Counter(letter for letter in text.lower() if letter > "\x7f" and (letter.isalpha() or letter in "ªº"))
    outside = min(sum(letters.values()) - sum(letters[x] for x in {*OF_NAMES, *alphabet}) for alphabet in ALPHABETS)
    return outside <= MAX_OUTSIDE * sum(letters.values())


def _hint(path: Path, encoding: str) -> str:
    return (
        "set the source's `encoding` in params.yaml where all text files have one encoding, or re-encode this one: "
        f"`iconv -f {encoding} -t UTF-8 {path.name} > new{path.suffix}`"
    )


def _not_decoded(path: Path, offset: int, byte: int, encoding: str, declared: str | None) -> PipelineError:
    origin = "declared as `encoding` of the source" if declared else "found out from the rest"
    return PipelineError(
        f"a file is not {name_of(encoding)}", path, where=f"byte {offset:,} (0x{byte:02x}); the encoding was {origin}",
        hint=_hint(path, "WINDOWS-1252" if encoding.startswith("utf-8") else encoding),
    )  # fmt: skip


def _binary(path: Path, offset: int) -> PipelineError:
    return PipelineError(
        "a file is binary", path, where=f"byte {offset:,} is NUL",
        hint="take it away; if it is UTF-16 without a byte order mark, re-encode it: "
        f"`iconv -f UTF-16LE -t UTF-8 {path.name} > new{path.suffix}`",
    )  # fmt: skip
