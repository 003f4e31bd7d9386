"""The attributes of a file in a listing, and the identity of its file in an offset."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.connectors.files.trail import BLOCK, Replaced

COMPRESSED: Final = (".gz", ".bz2", ".zst", ".xz", ".zip")
_TAGS: Final = ("ETag", "etag", "md5Hash", "content_md5")
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "modified")

_INODE: Final = "inode "

Position = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """size: in bytes, as they are stored. tag: an ETag, or the inode: another one means that it may be another file.
    changed: the time of the last change, as text."""

    size: int
    tag: str | None
    changed: str | None

    @classmethod
    def of(cls, listed: Mapping[str, Any]) -> "Facts":
        """From what a file system of fsspec lists."""
        inode = listed.get("ino")
        tag = next((str(listed[each]).strip('"') for each in _TAGS if listed.get(each)), None)
        changed = next((str(listed[each]) for each in _TIMES if listed.get(each) is not None), None)
        return cls(listed["size"], tag or (f"{_INODE}{inode}" if inode else None), changed)

    def is_of(self, file: Any) -> bool:
        """Whether an open file may be the one that was listed: of one with another ETag it is known that it is not."""
        details = getattr(file, "details", None)
        opened = next((str(details[each]).strip('"') for each in _TAGS if details.get(each)), None) if details else None
        return opened is None or self.tag is None or self.tag.startswith(_INODE) or opened == self.tag

    def identity(self) -> Position:
        """What a position keeps of the file."""
        return {"file": {"tag": self.tag, "changed": self.changed}}


def is_done(name: str, position: Mapping[str, Any], facts: Facts) -> bool:
    """Whether the file is as it was when everything in it had been read."""
    if position.get("file") != facts.identity()["file"]:
        return False
    if position.get("size", -1) == facts.size:
        return True
    return position.get("bytes", -1) == facts.size and not name.endswith(COMPRESSED)


def may_be_another(name: str, position: Mapping[str, Any], facts: Facts) -> bool:
    """Whether all bytes before the position have to be compared: a file that only grows keeps its inode and changes."""
    known = position.get("file")
    if known is None or known["tag"] != facts.tag or name.endswith(COMPRESSED):
        return True
    return bool(
        known["changed"] != facts.changed and facts.size <= max(position.get("size", 0), position.get("bytes", 0))
    )


def same_parquet(file: Any, position: Mapping[str, Any], facts: Facts) -> Position:
    """The identity of a Parquet file, which never grows, for an offset. Raises Replaced for another file.

    All bytes are compared where there is no ETag. A position without an identity, as earlier versions wrote them, is
    accepted unless the size differs.
    """
    has_etag = facts.tag is not None and not facts.tag.startswith(_INODE)
    identity = facts.identity() | ({} if has_etag else {"crc": _checksum(file)})
    known = position.get("file")
    is_same = position.get("size", facts.size) == facts.size
    if known is not None and known != identity["file"]:
        is_same = position.get("crc", known["tag"]) == identity.get("crc", facts.tag)
    if position and not is_same:
        raise Replaced(f"is not the file of Parquet of which {position.get('rows', 0)} rows were read")
    return identity


def _checksum(file: Any) -> int:
    """The CRC-32 of a file from its beginning, to which it goes back."""
    crc = 0
    while read := file.read(BLOCK):
        crc = zlib.crc32(read, crc)
    file.seek(0)
    return crc
