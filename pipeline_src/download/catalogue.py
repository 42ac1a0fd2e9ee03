"""Entries of the catalogue with the origin of data: checked, and with date and part filled in."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import check_path, shown
from pipeline_src.common.yaml_files import HELP, read_entry
from pipeline_src.config.schema import Section
from pipeline_src.download.checksums import Checksum

SCHEMES = ("https", "file", "pypi")
PLACEHOLDER = re.compile(r"\{[a-z]+\}")
PYPI = re.compile(r"pypi:(?P<package>[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+)/(?P<member>.+)")


def check_address(address: str) -> str:
    """Return an https address, with or without placeholders.

    Raises:
        ValueError: it is not an https address.
    """
    plain = PLACEHOLDER.sub("x", address)
    try:
        host = urlsplit(plain).hostname
    except ValueError:
        host = None
    if not (plain.startswith("https://") and host and re.fullmatch(r"[!-z|~]{1,2000}", plain)):
        raise ValueError(f"an address is https://HOST/PATH in ASCII, unlike {shown(address)}")
    return address


class Wheel(Section):
    """The wheel of ``pypi:`` addresses, by its tags."""

    checksum: str
    bytes: int | None = Field(default=None, gt=0)
    platforms: tuple[str, ...] = Field(min_length=1)
    python_version: str
    implementation: str
    abi: str

    @field_validator("checksum")
    @classmethod
    def _is_checksum(cls, text: str) -> str:
        return str(Checksum.parse(text))


class Excerpt(Section):
    """A part of a text file, by regular expressions in which ``^`` and ``$`` match at each line.

    Attributes:
        begins: its beginning, the match included.
        ends: its end, the match excluded.
        chapters: the beginning of each of its parts, which become separate files; text before the first is left out.
            Null for one file.
    """

    begins: str
    ends: str
    chapters: str | None = None

    @field_validator("begins", "ends", "chapters")
    @classmethod
    def _is_expression(cls, text: str | None) -> str | None:
        try:
            re.compile((text or "").encode())
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from None
        return text


class SourceFile(Section):
    """One file of an entry; see ``catalogue/README.md``."""

    path: str
    url: str
    mirrors: tuple[str, ...] = ()
    checksum: str | None = None
    checksum_file: str | None = None
    bytes: int | None = Field(default=None, gt=0)
    unpack: dict[str, str] | None = Field(default=None, min_length=1)
    excerpts: dict[str, Excerpt] | None = Field(default=None, min_length=1)
    wheel: Wheel | None = None

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def local_files(self) -> list[Path]:
        """Files on this machine that a resolved ``file:`` address names, sorted; none for other schemes."""
        if self.scheme != "file":
            return []
        found = glob.glob(self.url.removeprefix("file:"), recursive=True)
        return [Path(path) for path in sorted(found) if Path(path).is_file()]

    @field_validator("checksum")
    @classmethod
    def _is_checksum(cls, text: str | None) -> str | None:
        return None if text is None else str(Checksum.parse(text))

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if url.partition(":")[0] not in SCHEMES:
            raise ValueError(f"an address starts with one of {', '.join(SCHEMES)}")
        if url.startswith("pypi:") and not PYPI.fullmatch(url):
            raise ValueError("a pypi address is pypi:NAME==VERSION/path/inside/wheel")
        return check_address(url) if url.startswith("https:") else url

    @field_validator("mirrors")
    @classmethod
    def _mirrors_are_https(cls, mirrors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(check_address, mirrors))

    @field_validator("checksum_file")
    @classmethod
    def _list_is_https(cls, address: str | None) -> str | None:
        return None if address is None else check_address(address)

    @model_validator(mode="after")
    def _stays_inside(self) -> SourceFile:
        for path in (self.path, *(self.unpack or {}), *(self.excerpts or {})):
            if not (path == "." and self.scheme == "file"):  # a folder of the user's own
                check_path(PLACEHOLDER.sub("x", path))  # ``resolve`` checks what it fills in
        if self.checksum and self.checksum_file:
            raise ValueError("give checksum or checksum_file, not both")
        if self.unpack and self.excerpts:
            raise ValueError("give unpack or excerpts, not both")
        return self


class Source(Section):
    """One entry of the catalogue."""

    description: str
    licence: str
    language: str | None = Field(default=None, pattern=r"^[a-z]{2,3}$")
    terms: str | None = None
    citation: str
    part: str | None = None
    part_example: str | None = None
    wheel: Wheel | None = None
    files: tuple[SourceFile, ...] = Field(min_length=1)

    @field_validator("part")
    @classmethod
    def _is_expression(cls, part: str | None) -> str | None:
        try:
            re.compile(part or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"a part is a regular expression: {error}") from None
        return part

    @model_validator(mode="after")
    def _files_lie_apart(self) -> Source:
        paths = [path for file in self.files for path in file.unpack or file.excerpts or {file.path: ""} if path != "."]
        for path in paths:
            if paths.count(path) > 1 or any(other.startswith(f"{path}/") for other in paths):
                raise ValueError(f"two files of one path, or one within the other: {path}")
        return self

    @model_validator(mode="after")
    def _wheel_is_named(self) -> Source:
        if any(file.scheme == "pypi" and self.wheel_of(file) is None for file in self.files):
            raise ValueError("a pypi address needs a wheel, of its file or of the entry")
        return self

    def wheel_of(self, file: SourceFile) -> Wheel | None:
        """Return the wheel of a file of this entry: its own, else the entry's, or None."""
        return (file.wheel or self.wheel) if file.scheme == "pypi" else None


def load_source(folder: str, name: str) -> Source:
    """Read one entry of a folder of the catalogue, ``catalogue/task_sources`` or another."""
    try:
        return Source.model_validate(read_entry(folder, name))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PipelineError(
            "wrong entry in the catalogue",
            ".".join(str(step) for step in (name, *first["loc"])),
            where=f"{folder}/{name}.yaml",
            hint=f"{first['msg']}; see {HELP}",
        ) from None


def resolve(
    name: str, source: Source, *, date: str | None = None, part: str | None = None, where: str = "corpus.sources"
) -> Source:
    """Fill ``{date}``, ``{part}``, ``{path}`` and the named groups of the part into every path and address.

    The description may have them too, except ``{path}``. ``where`` is the source in params.yaml.
    """
    values = {} if date is None else {"date": date}
    if source.part is None and part is not None:
        raise PipelineError(f"{name} has no parts", part, where=f"{where}.parts in params.yaml", hint="set it to []")
    if source.part is not None:
        found = re.fullmatch(source.part, part or "")
        if found is None:
            raise PipelineError(
                f"{name} has no such part" if part else f"{name} needs its parts named",
                part,
                where=f"{where}.parts in params.yaml",
                hint=f"name parts like {source.part_example} (regular expression: {source.part})",
            )
        values |= {"part": found[0], **found.groupdict()}

    def substitute(text: str, **more: str) -> str:
        def value(placeholder: re.Match[str]) -> str:
            key = placeholder[0][1:-1]
            if key not in (known := values | more):
                raise PipelineError(
                    f"{name} needs a {key}",
                    text,
                    where="params.yaml",
                    hint=f"set {where}.{key}, such as 20260901 for the dump of that day",
                )
            return known[key]

        return PLACEHOLDER.sub(value, text)

    def substitute_file(file: SourceFile) -> SourceFile:
        path = substitute(file.path)
        try:
            path == "." or check_path(path)
        except ValueError as error:
            raise PipelineError("not a path below its folder", where=name, hint=str(error)) from None
        filled = {
            "path": path,
            "url": substitute(file.url, path=path),
            "mirrors": tuple(substitute(mirror, path=path) for mirror in file.mirrors),
            "checksum_file": file.checksum_file and substitute(file.checksum_file),
        }
        return file.model_copy(update=filled)

    files = tuple(substitute_file(file) for file in source.files)
    return source.model_copy(update={"description": substitute(source.description), "files": files})
