"""Decode text files: UTF-8, UTF-16 and UTF-32 by byte order mark, or a detected legacy encoding.

chardet knows how often pairs of letters occur in 49 languages, in each encoding of a language. It reliably tells
Hungarian from French, but not two encodings of the same language, which differ in only a few characters. Among those
encodings, this module chooses the one with the fewest implausible characters: "c½ur" and "cafŽ" show that "cœur" and
"café" were decoded with the wrong encoding. If no encoding is clearly best, an error is raised, since a wrong guess
would corrupt a book silently.
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
# Encodings of books, the most frequent first. The order decides between two encodings that fit equally well.
CANDIDATES = (
    *("cp1252", "iso8859-15", "mac-roman", "cp850", "cp437", "cp1250", "iso8859-2", "cp852", "mac-latin2"),
    *("cp1254", "iso8859-9", "cp857", "cp1257", "iso8859-13", "iso8859-4", "cp775", "cp1253", "iso8859-7", "cp737"),
    *("cp1251", "koi8-r", "koi8-u", "iso8859-5", "cp866", "mac-cyrillic", "cp1255", "iso8859-8", "cp862", "cp1256"),
    *("cp932", "euc_jis_2004", "gb18030", "big5hkscs", "cp949"),
)
# Thresholds for chardet's confidence, 0 to 1. Below MIN_CONFIDENCE a guess is ignored. A guess that is more than
# LANGUAGE_LEAD below the best one is another language. Two guesses that differ by less than TIE are equally likely.
MIN_CONFIDENCE = 0.02
LANGUAGE_LEAD = 0.05
TIE = 0.0005
# Maximum fraction of implausible characters among the non-ASCII characters.
MAX_MISREAD = 0.02
SAMPLE_BYTES = 100_000
# Python codecs that are not encodings of text files.
NON_TEXT_CODECS = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "mbcs", "oem"}
# A Project Gutenberg header or an HTML head names the encoding within this many bytes.
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
# A character in a place where no language has it, which shows that the encoding is wrong. No alternative scans ahead,
# so the search takes linear time.
_MISREAD = re.compile(
    # Control characters, private use characters, box drawing, ligatures and spacing accents.
    "[\x80-\x9f\ufffd\ue000-\uf8ff\u2500-\u259fﬁﬂ¨´¸ˇ˘˛˝]"
    # Matches in "c½ur" and "caf‚s", but not in "don’t" and "col·lega".
    rf"|(?<={_LETTER})(?:[ªº¹²³¼½¾ƒ]|[^\w\s\x00-\x7f‘’ʼ·—–…\xad‐‑\u2e80-\uffef])(?={_LETTER})"
    # Matches in "cafŽ" and in "BŠume" (for "Bäume"), but not in "ÄPFEL".
    rf"|(?<=[a-z{_LOWER}])[{_UPPER}]|[{_LOWER}](?=[A-Z{_UPPER}])|(?<!{_LETTER})[{_UPPER}](?=[A-Z{_UPPER}][a-z{_LOWER}])"
    rf"|(?<=[{_LATIN}])[{_OTHER_SCRIPT}]|[{_OTHER_SCRIPT}](?=[{_LATIN}])"
    # Matches in "Ł4" (for "£4").
    rf"|(?<=\d)[{_UPPER}{_LOWER}]|[{_UPPER}{_LOWER}](?=\d)|(?<=[,.;?!])[{_UPPER}{_LOWER}](?!{_LETTER})"
    # Greek "Άλλος" in a related code page is "¶λλος" or "’λλος". In the other direction, "’ά" becomes "Άά".
    rf"|¶(?={_LETTER})|’(?=([α-ω])\1)|Ά(?=[άέήίόύώ])"
    # Opening marks inside words, and quotation marks between spaces, but not the marks in "« Oui »".
    r"|(?<=\w)[„‚¿¡]|[„‚¿¡](?=\s)|(?<=\s)[“‘](?=\s)"
)


class Reading(NamedTuple):
    """A text decoded with one encoding.

    Attributes:
        confidence: confidence of chardet in this encoding, 0 to 1.
        misread: fraction of the non-ASCII characters that are implausible in their place.
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
            "unknown text encoding",
            declared,
            where="`encoding` of a source in params.yaml",
            hint="use a Python encoding name, such as utf-8, cp1252 or utf-16, or null to detect the encoding",
        ) from None


def decode(data: bytes, path: Path, declared: str | None) -> tuple[str, str]:
    # Return the text with \n as line ends, and the canonical name of its encoding.
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
        # The decoder may still hold the first bytes of a character from the last block.
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
    """Detect the encoding of a file and return the name of its Python codec.

    Args:
        data: content of the file, or only its start.
        declared: ``encoding`` of the source in params.yaml; None to detect it.
        complete: whether ``data`` is the whole file.
    """
    # As in browsers, a byte order mark overrides the declared encoding.
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    if declared and name_of(declared) in ("utf-16", "utf-32"):
        return f"{name_of(declared)}-le"
    if declared:
        return declared
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
            where=f"{where}; {wrong:,} invalid bytes, {right:,} valid characters",
            hint="fetch it again, or remove the invalid bytes: "
            f"`iconv -c -f UTF-8 -t UTF-8 {path.name} > new{path.suffix}`",
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
    # If punctuation outnumbers letters, as in "„Ja“, sagte er.", chardet is confident in no language. Then accept the
    # most frequent encoding, if all plausible encodings give the same text.
    texts = {reading.text for reading in plausible}
    if not likely and len(texts) == 1 and plausible[0].encoding == CANDIDATES[0]:
        return plausible[0].encoding
    raise PipelineError(
        "the encoding of a file cannot be detected",
        path,
        where=f"{where} is not UTF-8; it may be {', '.join(reading.encoding for reading in plausible) or 'binary'}",
        hint=_hint(path, plausible[0].encoding if plausible else "WINDOWS-1252"),
    )


def _readings(data: bytes) -> list[Reading]:
    # Decode the lines that are not ASCII with every encoding that chardet considers possible. Sort by the fraction of
    # implausible characters, lowest first.
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


def _is_tie(readings: list[Reading]) -> bool:
    # Return whether another encoding fits as well as the first one, but gives a different text.
    first = readings[0]
    near = [reading for reading in readings if reading.confidence > first.confidence - TIE]
    texts = {reading.text for reading in near if reading.misread == first.misread}
    return len(texts) > 1


def _named_encoding(data: bytes) -> str | None:
    # Return the encoding that the file itself names, if the file can be decoded with it. Latin-1 is replaced by cp1252,
    # as browsers do.
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
    origin = "detected from the start of the file"
    if declared:
        origin = "declared as `encoding` of the source"
    if encoding in dict(BYTE_ORDER_MARKS).values():
        origin = "given by the file's byte order mark"
    return PipelineError(
        f"the file cannot be decoded as {name_of(encoding)}",
        path,
        where=f"byte {offset:,} (0x{byte:02x}); the encoding was {origin}",
        hint=_hint(path, "WINDOWS-1252" if encoding.startswith("utf-8") else encoding),
    )


def _binary(path: Path, offset: int) -> PipelineError:
    return PipelineError(
        "the file is binary, not text",
        path,
        where=f"byte {offset:,} is NUL",
        hint="move it out of the folder; if it is UTF-16 without a byte order mark, re-encode it: "
        f"`iconv -f UTF-16LE -t UTF-8 {path.name} > new{path.suffix}`",
    )
