"""What clients of the simulated cluster were told, and whether it was true."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Violation(AssertionError):
    """A promise was broken; the message says which, where and when."""


@dataclass(slots=True)
class History:
    """All values are unique, so that a value says which produce it came from."""

    acknowledged: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Offset to value, as the broker has said with acks=all."""
    read: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Offset to value, as consumers have seen it."""
    refused: int = 0
    """Produces that got an error or no answer: the record may be there or not."""

    def acknowledge(self, place: Place, offset: int, value: bytes, now: float) -> None:
        """Raises Violation if another value was acknowledged, or read, at this offset."""
        for kind, known in (("acknowledged", self.acknowledged), ("read", self.read)):
            before = known[place].get(offset, value)
            if before != value:
                raise Violation(f"{now:.3f} s: {place}@{offset} is {value!r} now, and {before!r} was {kind} there")
        self.acknowledged[place][offset] = value

    def see(self, place: Place, offset: int, value: bytes, now: float) -> None:
        """A consumer got this value. Raises Violation if it should have been another."""
        for kind, known in (("acknowledged", self.acknowledged), ("read", self.read)):
            before = known[place].get(offset, value)
            if before != value:
                raise Violation(f"{now:.3f} s: {place}@{offset} reads {value!r}, and {before!r} was {kind} there")
        self.read[place][offset] = value

    def judge(self, final: dict[Place, dict[int, bytes]]) -> None:
        """Hold everything against what the partitions hold at the end. Raises Violation."""
        for what, known in (("acknowledged", self.acknowledged), ("read by a consumer", self.read)):
            for place, values in known.items():
                for offset, value in sorted(values.items()):
                    found = final[place].get(offset)
                    if found != value:
                        raise Violation(f"{place}@{offset}: {value!r} was {what}, at the end there is {found!r}")
        for place, values in final.items():
            copies = len(values) - len(set(values.values()))
            if copies > self.refused:
                raise Violation(f"{place} holds {copies} values twice, and only {self.refused} produces were in doubt")

    @property
    def count(self) -> int:
        return sum(len(values) for values in self.acknowledged.values())
