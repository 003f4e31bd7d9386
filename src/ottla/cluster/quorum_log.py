"""PURE. The log of Kafka's own metadata (`__cluster_metadata-0`), read from its files to take a cluster over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.cluster.metadata_log.state import ClusterState
from ottla.errors import CorruptMessage
from ottla.records.batch import BatchHeader, is_intact, iter_batches
from ottla.records.record import decode_records

if TYPE_CHECKING:
    from ottla.records.batch import Buffer

_FOOTER: Final = b"\0\0\0\4"
"""The key of the control record that ends a snapshot (KIP-630)."""


@dataclass(slots=True)
class QuorumLog:
    """A snapshot, then segments: what they add up to so far."""

    state: ClusterState = field(default_factory=ClusterState)
    next_offset: int = 0
    """Offset of the first record that was not read."""

    def read_snapshot(self, batches: Buffer, named: str, next_offset: int) -> None:
        """Apply a whole snapshot, which stands for all records before `next_offset`.

        Raises CorruptMessage if it is damaged or incomplete, or as `read`.
        """
        last = self._read_intact(batches, named)
        if last is None or not last.is_control or _last_key(batches, last) != _FOOTER:
            raise CorruptMessage(f"{named} is damaged or incomplete: the footer of the snapshot cannot be reached")
        self.next_offset = next_offset

    def read(self, batches: Buffer, named: str) -> None:
        """Apply the batches of a segment; those before `next_offset` are skipped.

        An incomplete or damaged end is ignored: its records were never acknowledged. Raises CorruptMessage for records
        that no quorum writes, and where records are missing; `named` is the name of the source.
        """
        self._read_intact(batches, named)

    def _read_intact(self, batches: Buffer, named: str) -> BatchHeader | None:
        """Apply all batches up to the first that is damaged or incomplete; returns the last one."""
        view = memoryview(batches)
        last = None
        for header in iter_batches(view, allow_partial_end=True):
            if not is_intact(view, header):
                break
            if header.base_offset > self.next_offset:
                raise CorruptMessage(
                    f"{named}: the records of the metadata log from offset {self.next_offset} to "
                    f"{header.base_offset - 1} are missing"
                )
            self._read_batch(view, header, named)
            last = header
        return last

    def _read_batch(self, view: memoryview, header: BatchHeader, named: str) -> None:
        if not header.is_control and header.next_offset > self.next_offset:
            for record in decode_records(view, header):
                if record.value is None or record.offset < self.next_offset:
                    continue
                try:
                    self.state.replay(record.value)
                except CorruptMessage as error:
                    raise type(error)(f"{named}, offset {record.offset}: {error}") from error
        self.next_offset = max(self.next_offset, header.next_offset)


def _last_key(batches: Buffer, header: BatchHeader) -> bytes | None:
    *_, last = decode_records(memoryview(batches), header)
    return last.key
