"""Metrics as they are declared: name, type, unit and meaning; and what was measured of each.

Names of Kafka's own metrics are those of the JMX exporter's rules for Kafka, which community dashboards read.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The types of Prometheus that are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class Family(NamedTuple):
    """One metric. A counter's name ends in `_total`; a summary has the label `quantile` besides its own."""

    name: str
    kind: Kind
    unit: str
    """What a value counts, as a plural: "records", "bytes", "seconds"."""
    doc: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value. `suffix` is `_count` or `_sum` for those of a summary."""

    labels: dict[str, str]
    value: float
    suffix: str = ""


class Measured(NamedTuple):
    """A family, and its values at one moment."""

    family: Family
    samples: list[Sample]

    def add(self, value: float, *labels: str) -> None:
        """Add a value; `labels` are the values of the family's labels, or none for the sum over all of them."""
        self.samples.append(Sample(dict(zip(self.family.labels, labels, strict=False)), value))


def counter(name: str, unit: str, doc: str, *labels: str) -> Family:
    """A number that only rises while the process runs."""
    return Family(name, Kind.COUNTER, unit, doc, labels)


def gauge(name: str, unit: str, doc: str, *labels: str) -> Family:
    """A number that rises and falls."""
    return Family(name, Kind.GAUGE, unit, doc, labels)


def summary(name: str, unit: str, doc: str, *labels: str) -> Family:
    """Quantiles of the last minutes, with the count and sum since the start."""
    return Family(name, Kind.SUMMARY, unit, doc, labels)


class Measurements:
    """What one scrape gathers: families in the order of their first value."""

    def __init__(self) -> None:
        self._families: dict[str, Measured] = {}

    def of(self, family: Family) -> Measured:
        """The values of a family, to add to."""
        found = self._families.get(family.name)
        if found is None:
            found = self._families[family.name] = Measured(family, [])
        return found

    def add(self, family: Family, value: float, *labels: str) -> None:
        """Add one value, as `Measured.add`."""
        self.of(family).add(value, *labels)

    def add_quantiles(
        self, family: Family, quantiles: Iterable[tuple[str, float]], count: int, total: float, *labels: str
    ) -> None:
        """Add a summary: each quantile ("0.99") with its value, the count, and the sum."""
        own = dict(zip(family.labels, labels, strict=True))
        samples = self.of(family).samples
        samples += [Sample({**own, "quantile": quantile}, value) for quantile, value in quantiles]
        samples += [Sample(own, count, "_count"), Sample(own, total, "_sum")]

    def __iter__(self) -> Iterator[Measured]:
        return iter(self._families.values())

    def __len__(self) -> int:
        return sum(len(measured.samples) for measured in self._families.values())
