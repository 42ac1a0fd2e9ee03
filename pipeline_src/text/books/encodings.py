"""Decode text files: UTF-8, UTF-16 and UTF-32 by byte order mark, or a detected legacy encoding.

chardet knows the pairs of letters of 49 languages in each of their encodings. So it tells Hungarian from French surely,
but not the encodings of one language, which differ in few characters. Of those, the one with the fewest characters that
are implausible where they stand is right: "c½ur" and "cafŽ" are "cœur" and "café" in others. An encoding that cannot be
detected with confidence is an error, since a wrong guess corrupts a book silently.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from chardet import detect_all

from pipeline_src.base.errors import PipelineError

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The encodings in which books are found; the more frequent of two that fit equally well comes first.
CANDIDATES = (
    *("cp1252", "iso8859-15", "mac-roman", "cp850", "cp437", "cp1250", "iso8859-2", "cp852", "mac-latin2"),
    *("cp1254", "iso8859-9", "cp857", "cp1257", "iso8859-13", "iso8859-4", "cp775", "cp1253", "iso8859-7", "cp737"),
    *("cp1251", "koi8-r", "koi8-u", "iso8859-5", "cp866", "mac-cyrillic", "cp1255", "iso8859-8", "cp862", "cp1256"),
    *("cp932", "euc_jis_2004", "gb18030", "big5hkscs", "cp949"),
)
# Of chardet's confidence, 0 to 1: a few letters have less; another language is further from the best, a tie is nearer.
MIN_CONFIDENCE = 0.02
LANGUAGE_LEAD = 0.05
TIE = 0.0005
# Fraction of the non-ASCII characters that may be implausible where they stand.
MAX_MISREAD = 0.02
SAMPLE_BYTES = 100_000
# Python's codecs that are no text encodings
NON_TEXT_CODECS = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "mbcs", "oem"}
# Where Project Gutenberg's header, or the head of a page of HTML, names the encoding.
HEADER_BYTES = 5_000
BLOCK_SIZE = 1 << 20

_NAMED = re.compile(
    rb"(?:^Character set encoding:[ \t]*|<meta\b[^<>]{0,200}\bcharset\s*=\s*[\"']?\s*"
    rb"|<\?xml\b[^<>]{0,80}\bencoding\s*=\s*[\"'])([\w.-]{1,40})",
    re.I | re.M,
)
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_NON_ASCII = re.compile("[^\x00-\x7f]")
_ALPHABETIC = [letter for letter in map(chr, range(0xC0, 0x530)) if letter.isalpha()]
_UPPER = "".join(filter(str.isupper, _ALPHABETIC))
_LOWER = "".join(filter(str.islower, _ALPHABETIC))
_LATIN = "a-zA-ZÀ-ÖØ-öø-ɏ"
_OTHER_SCRIPT = "\u0370-\u052f\u0590-\u06ff"
_LETTER = r"[^\W\d_]"
# A character that a wrong encoding puts where no language has it. No pattern scans ahead.
_MISREAD = re.compile(
    # Controls, private characters, boxes, ligatures and spacing accents
    "[\x80-\x9f\ufffd\ue000-\uf8ff\u2500-\u259fﬁﬂ¨´¸ˇ˘˛˝]"
    # "c½ur", "caf‚s"; but "don’t", "col·lega"
    rf"|(?<={_LETTER})(?:[ªº¹²³¼½¾ƒ]|[^\w\s\x00-\x7f‘’ʼ·—–…\xad‐‑\u2e80-\uffef])(?={_LETTER})"
    # "cafŽ", "Bäume" as "BŠume"; but "ÄPFEL"
    rf"|(?<=[a-z{_LOWER}])[{_UPPER}]|[{_LOWER}](?=[A-Z{_UPPER}])|(?<!{_LETTER})[{_UPPER}](?=[A-Z{_UPPER}][a-z{_LOWER}])"
    rf"|(?<=[{_LATIN}])[{_OTHER_SCRIPT}]|[{_OTHER_SCRIPT}](?=[{_LATIN}])"
    # "£4" as "Ł4"
    rf"|(?<=\d)[{_UPPER}{_LOWER}]|[{_UPPER}{_LOWER}](?=\d)|(?<=[,.;?!])[{_UPPER}{_LOWER}](?!{_LETTER})"
    # "Άλλος" in the code page beside: "¶λλος", "’λλος"; and its "’ά" here
    rf"|¶(?={_LETTER})|’(?=([α-ω])\1)|Ά(?=[άέήίόύώ])"
    # Opening marks within words, and quotation marks between blanks; but « Oui »
    r"|(?<=\w)[„‚¿¡]|[„‚¿¡](?=\s)|(?<=\s)[“‘](?=\s)"
)


class Reading(NamedTuple):
    """A text read in one encoding.

    Attributes:
        confidence: chardet's, 0 to 1.
        misread: fraction of the non-ASCII characters that are implausible where they stand.
    """

    encoding: str
    confidence: float
    text: str
    misread: float


def fraction_misread(text: str) -> float:
    return len(_MISREAD.findall(text)) / max(1, len(_NON_ASCII.findall(text)))


def check_encoding(declared: str | None) -> None:
    try:
        if (declared or "utf-8").lower().replace("_", "-") in NON_TEXT_CODECS or "a".encode(declared or "utf-8") == b"":
            raise LookupError
        b"a".decode(declared or "utf-8", "replace")
    except (LookupError, ValueError):
        raise PipelineError(
            "no such encoding",
            declared,
            where="`encoding` of a source in params.yaml",
            hint="use a name that Python knows, such as utf-8, cp1252 or utf-16, or null to find it out",
        ) from None


# The text has \n line ends, the encoding its canonical name.
def decode(data: bytes, path: Path, declared: str | None) -> tuple[str, str]:
    encoding = find_encoding(data, path, declared)
    text = "".join(_decode_blocks(io.BytesIO(data), path, encoding, declared, BLOCK_SIZE))
    return text.replace("\r\n", "\n").replace("\r", "\n"), name_of(encoding)


def decode_blocks(path: Path, encoding: str, declared: str | None, size: int = BLOCK_SIZE) -> Iterator[str]:
    with open(path, "rb") as file:
        yield from _decode_blocks(file, path, encoding, declared, size)


def _decode_blocks(file: IO[bytes], path: Path, encoding: str, declared: str | None, size: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    position = 0
    block = b"start"
    while block:
        block = file.read(size)
        # A character may begin in the last block.
        start = position - len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise _not_decoded(path, start + error.start, byte, encoding, declared) from None
        nul = text.find("\0")
        if nul >= 0:
            raise _binary(path, start + len(text[:nul].encode(encoding)))
        yield text
        position += len(block)


def find_encoding(data: bytes, path: Path, declared: str | None, complete: bool = True) -> str:
    """Detect the encoding of a file and return its name in Python's codecs.

    Args:
        data: the file, or its start unless ``complete``.
        declared: the source's ``encoding``; None to detect it.
    """
    marked = [encoding for mark, encoding in BYTE_ORDER_MARKS if data.startswith(mark)]
    if declared and name_of(declared) in ("utf-16", "utf-32") and not marked:
        return f"{name_of(declared)}-le"
    if declared:
        return "utf-8-sig" if name_of(declared) == "utf-8" else declared
    if marked:
        return marked[0]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=complete)
    except UnicodeDecodeError as error:
        nul = data.find(0)
        if nul >= 0:
            raise _binary(path, nul) from None
        return _legacy_encoding(data, path, error.start)
    return "utf-8"


def name_of(encoding: str) -> str:
    return codecs.lookup(encoding.replace("-sig", "")).name


def _legacy_encoding(data: bytes, path: Path, offset: int) -> str:
    text = data.decode("utf-8", "surrogateescape")
    wrong = len(_UNDECODABLE.findall(text))
    right = len(_NON_ASCII.findall(text)) - wrong
    where = f"byte {offset:,} (0x{data[offset]:02x})"
    if right > wrong:
        raise PipelineError(
            "damaged UTF-8",
            path,
            where=f"{where}; {wrong:,} wrong bytes, {right:,} right characters",
            hint=f"fetch it again, or drop wrong bytes: `iconv -c -f UTF-8 -t UTF-8 {path.name} > new{path.suffix}`",
        )
    readings = _readings(data)
    plausible = [reading for reading in readings if reading.misread <= MAX_MISREAD]
    min_confidence = max((reading.confidence for reading in readings), default=0.0) - LANGUAGE_LEAD
    likely = [reading for reading in plausible if reading.confidence >= min_confidence]
    named = _named_encoding(data)
    if named and (named not in CANDIDATES or named in [reading.encoding for reading in plausible]):
        return named
    if likely and not _is_tie(likely):
        return likely[0].encoding
    # Where marks outnumber letters, as in "„Ja“, sagte er.", no language is likely: the most frequent encoding, alone.
    texts = {reading.text for reading in plausible}
    if not likely and len(texts) == 1 and plausible[0].encoding == CANDIDATES[0]:
        return plausible[0].encoding
    raise PipelineError(
        "the encoding of a file cannot be detected",
        path,
        where=f"{where} is not UTF-8; it may be {', '.join(reading.encoding for reading in plausible) or 'no text'}",
        hint=_hint(path, plausible[0].encoding if plausible else "WINDOWS-1252"),
    )


# Readings in every encoding that the text may have. The fewest misread characters come first.
def _readings(data: bytes) -> list[Reading]:
    sample = b"\n".join(line for line in data.split(b"\n") if not line.isascii())[:SAMPLE_BYTES]
    guesses = detect_all(
        sample,
        ignore_threshold=True,
        compat_names=False,
        include_encodings=CANDIDATES,
        max_bytes=SAMPLE_BYTES,
    )
    readings = []
    for guess in guesses:
        encoding = guess["encoding"]
        if encoding in CANDIDATES and guess["confidence"] >= MIN_CONFIDENCE:
            text = sample.decode(encoding, "replace")
            readings.append(Reading(encoding, guess["confidence"], text, fraction_misread(text)))
    return sorted(readings, key=lambda reading: (reading.misread, CANDIDATES.index(reading.encoding)))


# Whether another text fits as well as the first.
def _is_tie(readings: list[Reading]) -> bool:
    first = readings[0]
    near = [reading for reading in readings if reading.confidence > first.confidence - TIE]
    texts = {reading.text for reading in near if reading.misread == first.misread}
    return len(texts) > 1


# The encoding that the file names, if it decodes. Latin-1 is read as cp1252.
def _named_encoding(data: bytes) -> str | None:
    match = _NAMED.search(data[:HEADER_BYTES])
    if not match:
        return None
    try:
        name = name_of(match[1].decode("ascii"))
        name = "cp1252" if name in ("iso8859-1", "ascii") else name
        codecs.getincrementaldecoder(name)().decode(data)
    except (LookupError, ValueError, AssertionError, TypeError):
        return None
    return None if name.startswith("utf") else name


def _hint(path: Path, encoding: str) -> str:
    return (
        "set the source's `encoding` in params.yaml where all text files have one encoding, or re-encode this one: "
        f"`iconv -f {encoding} -t UTF-8 {path.name} > new{path.suffix}`"
    )


def _not_decoded(path: Path, offset: int, byte: int, encoding: str, declared: str | None) -> PipelineError:
    origin = "declared as `encoding` of the source" if declared else "found out from the rest"
    return PipelineError(
        f"a file is not {name_of(encoding)}",
        path,
        where=f"byte {offset:,} (0x{byte:02x}); the encoding was {origin}",
        hint=_hint(path, "WINDOWS-1252" if encoding.startswith("utf-8") else encoding),
    )


def _binary(path: Path, offset: int) -> PipelineError:
    return PipelineError(
        "a file is binary",
        path,
        where=f"byte {offset:,} is NUL",
        hint="take it away; if it is UTF-16 without a byte order mark, re-encode it: "
        f"`iconv -f UTF-16LE -t UTF-8 {path.name} > new{path.suffix}`",
    )
