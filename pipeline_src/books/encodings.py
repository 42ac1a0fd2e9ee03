"""How the bytes of a text file become characters: UTF-8, UTF-16 by its mark, or an older encoding found out.

What cannot be told with confidence is an error, not a guess: a wrong one spoils a book without a trace.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from charset_normalizer import CharsetMatch, from_bytes

from pipeline_src.books.misread import share_misread
from pipeline_src.common.errors import PipelineError

MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
# Those in which books are found. Where most letters are ASCII, no other script is in question.
WESTERN = ["cp1252", "mac_roman", "cp850", "cp437"]
LATIN = [*WESTERN, "cp1250", "iso8859_2", "cp852", "mac_latin2"]
OTHER = ["cp1251", "koi8_r", "iso8859_5", "cp866", "mac_cyrillic", "cp1253", "cp932", "euc_jp", "gb18030", "big5",
         "cp949"]  # fmt: skip
NEARLY_ASCII = 0.01  # letters beyond ASCII for each ASCII letter, below which a text is of a Western language
CLEAR = 0.02  # share of misread characters by which one encoding must be better than another
MOST_MISREAD = 0.1
MOST_ASCII = 0.5  # bytes beyond ASCII for each ASCII letter
SAMPLE = 20_000  # bytes of words that are not ASCII, on which the older encodings are compared
FEWEST = 100  # such bytes that tell one script from another
MESSIEST, AS_GOOD, SURE_LEAD = 0.35, 0.05, 0.1  # of charset-normalizer's chaos, chaos, coherence (0 to 1)
NO_TEXT = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "mbcs", "oem"}  # that Python knows
HEAD = 5_000  # bytes in which a file may name its encoding
BLOCK = 1 << 20  # bytes read at a time where a file is streamed

_FOREIGN_WORD = re.compile(rb"[^\x00-\x20]*[\x80-\xff][^\x00-\x20]*")
_ASCII_LETTER = re.compile(rb"[A-Za-z]")
_FOREIGN = re.compile(rb"[\x80-\xff]")
_TYPESET = re.compile(rb"[\x85\x91-\x97\xa0-\xff]*")  # the marks of cp1252 that books use, and Latin-1
_SAID = re.compile(rb"^Character set encoding:[ \t]*([\w.-]{1,40})", re.I | re.M)
_WRONG = re.compile("[\udc80-\udcff]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def check_encoding(declared: str | None) -> None:
    """Raise a PipelineError where ``declared`` is no name of an encoding that Python knows."""
    try:
        if (declared or "utf-8").lower().replace("_", "-") in NO_TEXT or "a".encode(declared or "utf-8") == b"":
            raise LookupError
        b"a".decode(declared or "utf-8", "replace")
    except (LookupError, ValueError):
        raise PipelineError(
            "no such encoding", declared, where="books.encoding in params.yaml",
            remedy="use a name that Python knows, such as utf-8, cp1252 or utf-16, or null to find it out",
        ) from None  # fmt: skip


def decode(data: bytes, path: Path, declared: str | None) -> tuple[str, str]:
    """The text of a whole file with ``\\n`` line ends, and the name of its encoding (``utf-8``, ``cp1252``).

    Raises:
        PipelineError: its encoding cannot be told, or a byte of it is not text in that encoding; it is named.
    """
    encoding = find_encoding(data, path, declared)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise _not_decoded(path, error.start, data[error.start], encoding, declared) from None
    if (nul := text.find("\0")) >= 0:
        raise _binary(path, len(text[:nul].encode(encoding)))
    return _lines(text), name_of(encoding)


def decode_blocks(path: Path, encoding: str, declared: str | None) -> Iterator[str]:
    """The text of a file of any size, a block at a time; errors as in :func:`decode`, with the offset in the file."""
    decoder = codecs.getincrementaldecoder(encoding)()
    done = 0
    with open(path, "rb") as file:
        while True:
            block = file.read(BLOCK)
            held = len(decoder.getstate()[0])  # bytes of a character that the last block began
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = done - held + error.start
                raise _not_decoded(path, at, error.object[error.start], encoding, declared) from None
            if (nul := text.find("\0")) >= 0:
                raise _binary(path, done - held + len(text[:nul].encode(encoding)))
            if not block:
                yield text
                return
            done += len(block)
            yield text


def find_encoding(data: bytes, path: Path, declared: str | None, whole: bool = True) -> str:
    """The encoding of a file, as a name for Python's codecs.

    Args:
        data: the file, or its start where ``whole`` is false.
        path: for errors.
        declared: ``books.encoding``; null finds it out.
        whole: whether the last character must be complete.

    Raises:
        PipelineError: the file is binary or its encoding cannot be told with confidence.
    """
    if declared:
        return "utf-8-sig" if name_of(declared) == "utf-8" else declared
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError as error:
        if (nul := data.find(0)) >= 0:
            raise _binary(path, nul) from None
        return _older_encoding(data, path, error.start)
    return "utf-8"


def name_of(encoding: str) -> str:
    """One name for all of an encoding's aliases."""
    return codecs.lookup(encoding.replace("-sig", "")).name


def _older_encoding(data: bytes, path: Path, offset: int) -> str:
    """Which encoding a file has that is not UTF-8, from its words beyond ASCII: the rest says nothing about it."""
    read = data.decode("utf-8", "surrogateescape")
    wrong = len(_WRONG.findall(read))
    if (right := len(_NOT_ASCII.findall(read)) - wrong) > wrong:
        raise PipelineError(
            "damaged UTF-8", path,
            where=f"byte {offset:,} (0x{data[offset]:02x}); {wrong:,} wrong bytes, {right:,} right characters",
            remedy=f"fetch it again, or drop wrong bytes: `iconv -c -f UTF-8 -t UTF-8 {path.name} > new{path.suffix}`",
        )  # fmt: skip
    foreign, letters = len(_FOREIGN.findall(data)), len(_ASCII_LETTER.findall(data))
    latin = foreign <= MOST_ASCII * letters
    sample = b" ".join(_FOREIGN_WORD.findall(data))[:SAMPLE]
    candidates = LATIN if latin else OTHER
    if (said := _said(data)) in candidates:  # by the file itself, and borne out by its text
        candidates = [said]
    plausible = _plausible(sample, candidates)
    if plausible and latin and (len(_readings(sample, plausible)) == 1 or _is_western(data, plausible[0], letters)):
        return plausible[0]
    if plausible and (latin or foreign >= FEWEST) and (sure := _most_like_a_language(sample, plausible, latin)):
        return sure
    raise PipelineError(
        "the encoding of a book cannot be told", path,
        where=f"byte {offset:,} (0x{data[offset]:02x}) is not UTF-8; it may be {', '.join(plausible) or 'no text'}",
        remedy=_remedy(path, plausible[0] if plausible else "WINDOWS-1252"),
    )  # fmt: skip


def _said(data: bytes) -> str | None:
    """The encoding that Project Gutenberg's frame names; what calls itself Latin-1 or ASCII is cp1252."""
    found = _SAID.search(data[:HEAD])
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else None
    except LookupError:
        return None
    return "cp1252" if name in ("iso8859-1", "ascii") else name and name.replace("-", "_")


def _plausible(sample: bytes, candidates: list[str]) -> list[str]:
    """Those that misread the fewest characters, best first, equals in their order; none where all misread many."""
    shares = {name: share_misread(sample.decode(name, "replace")) for name in candidates}
    best = min(shares.values())
    good = [name for name, share in shares.items() if best <= MOST_MISREAD and share <= best + CLEAR]
    return sorted(good, key=lambda name: round(shares[name], 2))


def _is_western(data: bytes, encoding: str, letters: int) -> bool:
    """Whether a text has so few letters beyond ASCII that no other language than a Western one is in question."""
    foreign = b"".join(_FOREIGN.findall(data)).decode(encoding, "replace")
    return encoding in WESTERN and sum(map(str.isalpha, foreign)) <= NEARLY_ASCII * letters


def _readings(sample: bytes, names: list[str]) -> set[str]:
    return {sample.decode(name, "replace") for name in names}


def _most_like_a_language(sample: bytes, names: list[str], latin: bool) -> str | None:
    """The one whose text reads like a language, by charset-normalizer's judgement."""
    matches = from_bytes(
        sample, steps=1, chunk_size=len(sample), threshold=MESSIEST, cp_isolation=names,
        preemptive_behaviour=False, enable_fallback=False,
    )  # fmt: skip
    best = min((match.chaos for match in matches), default=0.0)
    good = [match for match in matches if match.chaos <= best + AS_GOOD]
    known = {name for match in good for name in match.could_be_from_charset}
    if latin and "cp1252" in known and _TYPESET.fullmatch(b"".join(_FOREIGN.findall(sample))):
        return "cp1252"  # by far the most frequent of its kind
    return _clear_winner(good)


def _clear_winner(matches: list[CharsetMatch]) -> str | None:
    """The one encoding that fits, or whose text reads much more like a language than the others' texts do."""
    ranked = sorted(matches, key=lambda match: -match.coherence)
    if ranked and (len(ranked) == 1 or ranked[0].coherence >= ranked[1].coherence + SURE_LEAD):
        return ranked[0].encoding
    return None


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _remedy(path: Path, encoding: str) -> str:
    return (
        "set books.encoding in params.yaml where all text files have one encoding, or re-encode this one: "
        f"`iconv -f {encoding} -t UTF-8 {path.name} > new{path.suffix}`"
    )


def _not_decoded(path: Path, offset: int, byte: int, encoding: str, declared: str | None) -> PipelineError:
    said = "declared as books.encoding" if declared else "found out from the rest"
    return PipelineError(
        f"a book is not {name_of(encoding)}", path, where=f"byte {offset:,} (0x{byte:02x}); the encoding was {said}",
        remedy=_remedy(path, "WINDOWS-1252" if encoding.startswith("utf-8") else encoding),
    )  # fmt: skip


def _binary(path: Path, offset: int) -> PipelineError:
    return PipelineError(
        "a book is binary", path, where=f"byte {offset:,} is NUL",
        remedy="take it away; if it is UTF-16 without a byte order mark, re-encode it: "
        f"`iconv -f UTF-16LE -t UTF-8 {path.name} > new{path.suffix}`",
    )  # fmt: skip
