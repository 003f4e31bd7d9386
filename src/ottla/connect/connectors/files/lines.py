"""Lines of a file as texts, counted in bytes, whatever their encoding and however the file is compressed."""

import codecs
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, Final

from ottla.connect.api import ConnectError
from ottla.connect.connectors.files.trail import BLOCK, Trail

LONGEST: Final = 64 << 20
"""Bytes of a line, and of a value in a CSV file."""
_STATEFUL: Final = ("iso2022", "utf_7", "hz", "punycode", "idna", "unicode_escape", "raw_unicode_escape")
_MARKS: Final = {
    "utf-16": {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"},
    "utf-32": {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"},
}
_LINE_FEED: Final = 0x0A
_CUT: Final = (EOFError, zlib.error, lzma.LZMAError)


class LeftAlone(Exception):
    """A file that cannot be read further now, for a temporary reason or one that a user has to look at: a sentence."""


class OpenFile:
    """A file as `Bytes`. A compressed one that is cut off ends there as long as it may still be written."""

    def __init__(self, file: Any, name: str, *, is_complete: bool) -> None:
        self._file, self._name, self._is_complete = file, name, is_complete
        self._read = getattr(file, "read1", file.read)

    def read(self, most: int) -> bytes:
        """Some bytes; none at the end of what is there."""
        try:
            read: bytes = self._read(most)
        except _CUT as error:
            if not self._is_complete:
                return b""
            raise ConnectError(f"{self._name} is cut off, or no compressed file: {error}; mend it") from error
        return read

    def skip_to(self, at: int) -> None:
        """Go to a place after the present one."""
        self._file.seek(at)


def check_encoding(encoding: str) -> str:
    """Raise ValueError for an encoding that is unknown, or whose lines cannot be read one by one."""
    try:
        name = codecs.lookup(encoding).name
        end = "\n".encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise ValueError(f"{encoding!r} is no encoding of texts that Python knows") from error
    if not end or name.replace("-", "_").startswith(_STATEFUL):
        raise ValueError(f"{encoding!r} is read from the beginning of a text alone, and not line by line")
    return encoding


class Lines:
    """Whole lines of a file; a last one without an end is not whole until the file is complete.

    file: is at the end of `trail`, whose head has the byte order mark. `settle` adds the lines that came to the trail.
    """

    def __init__(self, file: OpenFile, name: str, trail: Trail, encoding: str, *, is_complete: bool) -> None:
        self._file, self._name, self.is_complete = file, name, is_complete
        self.trail = trail
        self.at = trail.at
        self.is_amid = False
        """Whether the last line that came has no end."""
        self.wrong: str | None = None
        """Why a line since the last `settle` is no text, in a sentence."""
        self._buffer, self._used = b"", 0
        self._unsettled: list[bytes] = []
        self._encoding, self._end = self._resolve(encoding)
        self._is_narrow = self._end == b"\n"
        if self.at and not trail.ends_with(self._end):
            self._go_on()

    def __iter__(self) -> Iterator[str]:
        while line := self._next():
            if not ((self._is_narrow and line[-1] == _LINE_FEED) or self._is_whole(line)):
                if not self.is_complete:
                    return
                self.is_amid = True
            is_first = self.at == 0
            self.at += len(line)
            self._unsettled.append(line)
            yield self._text(line, is_first=is_first)

    def settle(self) -> None:
        """Count the lines that came as read: a row was made of them, or they were refused."""
        self.trail.extend(self._unsettled, self.at)
        self._unsettled.clear()
        self.wrong = None

    def _is_whole(self, line: bytes) -> bool:
        return len(line) % len(self._end) == 0 and line.endswith(self._end)

    def _resolve(self, encoding: str) -> tuple[str, bytes]:
        """The encoding with its order of bytes, and the end of a line in it."""
        name = codecs.lookup(encoding).name
        if name in _MARKS:
            if not self.at:
                self._fill(BLOCK)
            start = self.trail.head or self._buffer
            marked = [each for mark, each in _MARKS[name].items() if start.startswith(mark)]
            if start and not marked:
                raise ConnectError(
                    f"{self._name} does not begin with a byte order mark: set encoding to {name}-le or {name}-be"
                )
            name = marked[0] if marked else f"{name}-le"
        elif name == "utf-8-sig":
            name = "utf-8"
        return name, "\n".encode(name)

    def _go_on(self) -> None:
        """Go on after a last line that had no end. Raises LeftAlone if more was added to the line than its end."""
        more = self._next()
        if more.strip(b"\r\n\x00"):
            raise LeftAlone(
                f"{self._name} has no end of a line at byte {self.at}, to which it was read: its writer pauses amid "
                "lines, or it was replaced; delete the connector's offset of this file to read it again"
            )
        self.at += len(more)
        self.trail.add(more)

    def _next(self) -> bytes:
        """The next line with its end, what is there of the last one, or nothing."""
        if self._is_narrow and (found := self._buffer.find(b"\n", self._used) + 1):  # nearly always
            line = self._buffer[self._used : found]
            self._used = found
            return line
        searched = 0
        while (found := self._find_end(searched)) < 0:
            searched = len(self._buffer) - self._used
            if searched > LONGEST:
                self._leave_out()
                searched = 0
            if not self._fill(max(searched, BLOCK)):
                found = len(self._buffer)
                break
        line = self._buffer[self._used : found]
        self._used = found
        return line

    def _find_end(self, searched: int) -> int:
        """Where the line in the buffer ends, or -1: ends of wide characters stand at multiples of their width."""
        width = len(self._end)
        start = self._used + max(searched - width, 0)
        while (found := self._buffer.find(self._end, start)) >= 0:
            if (found - self._used) % width == 0:
                return found + width
            start = found + 1
        return -1

    def _fill(self, more: int) -> bool:
        """Have so many more bytes in the buffer, or as many as are there. Returns whether there were any."""
        parts = [self._buffer[self._used :]]
        while more > 0 and (read := self._file.read(more)):
            parts.append(read)
            more -= len(read)
        self._buffer, self._used = b"".join(parts), 0
        return len(parts) > 1

    def _leave_out(self) -> None:
        """Forget what is in the buffer of a line that is too long, and has no end there."""
        kept = len(self._buffer) - (len(self._buffer) - self._used) % len(self._end)
        self.settle()
        self.trail.add(self._buffer[self._used : kept])
        self.trail.settle()
        self.at += kept - self._used
        self._used = kept
        self.wrong = f"{self._name} has a line of more than {LONGEST >> 20} MB before byte {self.at}; mend it"

    def _text(self, line: bytes, *, is_first: bool) -> str:
        try:
            text = line.decode(self._encoding)
        except UnicodeDecodeError as error:
            text = line.decode(self._encoding, "replace")
            self.wrong = (
                f"{self._name} has a line before byte {self.at} that is no {self._encoding}: {self._advice(error)}"
            )
        return text.removeprefix("\ufeff") if is_first else text

    def _advice(self, error: UnicodeDecodeError) -> str:
        start = self.trail.head or self._unsettled[0]
        for name, marks in _MARKS.items():
            if self._encoding == "utf-8" and start.startswith(tuple(marks)):
                return f"the file begins as {name} does: set encoding={name}"
        return f"{error.reason}; set encoding, or mend it"


def carriage_returns(name: str, at: int) -> str:
    """What to say of a file whose lines end as they did on old Macs."""
    return (
        f"{name} has carriage returns and no line feeds before byte {at}: lines have to end in \\n or \\r\\n; "
        "convert the file"
    )
