"""Records as confluent-kafka has them, for tests of what becomes of them."""

from typing import NamedTuple


class Sent(NamedTuple):
    """A record that was read."""

    key_: bytes | None = None
    value_: bytes | None = None
    headers_: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_: int = 1_767_225_600_000
    offset_: int = 7
    partition_: int = 2

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.headers_)

    def timestamp(self) -> tuple[int, int]:
        return 1, self.timestamp_

    def offset(self) -> int:
        return self.offset_

    def partition(self) -> int:
        return self.partition_
