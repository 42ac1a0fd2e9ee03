"""What has arrived of a download that is not whole yet."""

from __future__ import annotations

import http.client
import re
import shutil
from pathlib import Path


class Partial:
    """What has arrived, and of which edition of the file: its ETag or date stands in a note beside it.

    Attributes:
        endless: whether the server did not say how much there is.
    """

    def __init__(self, path: Path, checked: bool) -> None:
        self.path, self.checked, self.endless = path, checked, False
        self._note = path.with_name(f"{path.name}.edition")
        self.keep_if_it_can_go_on()

    def keep_if_it_can_go_on(self) -> None:
        """Remove it where nothing would show that the rest belongs to it."""
        if not self.checked and self.edition is None:
            self.remove()

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def edition(self) -> str | None:
        """What names the edition of the file; None where the server said nothing of it."""
        return self._note.read_text(encoding="ascii", errors="replace") if self._note.exists() else None

    def has_space(self, more: int) -> bool:
        """Whether the disk has room for so many bytes; one that does not say how large it is has."""
        usage = shutil.disk_usage(self.path.parent)
        return more <= usage.free or not usage.total

    def begin(self, headers: http.client.HTTPMessage) -> None:
        """Start a file anew."""
        self.remove()
        tag = headers.get("ETag", "")
        edition = tag if re.fullmatch(r'"[\x21\x23-\x7e]{1,200}"', tag) else headers.get("Last-Modified", "")
        if edition and edition.isascii() and edition.isprintable():
            self._note.write_text(edition, encoding="ascii")

    def remove(self) -> None:
        """Delete it and its note."""
        for path in (self.path, self._note):
            path.unlink(missing_ok=True)
