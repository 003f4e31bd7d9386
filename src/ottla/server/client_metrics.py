"""Metrics that clients have pushed (KIP-714), as series for Prometheus. PURE: bounded in clients, series and time.

Clients send sums as what has come since their last push, so that sums are kept here; gauges replace each other. A
client's series end with its last push, or when none has come for three of its intervals.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final, NamedTuple
from uuid import UUID

from ottla.metrics.families import Family, Kind, Measured, Sample
from ottla.metrics.otlp import Metric

MOST_CLIENTS: Final = 1_000
MOST_SERIES: Final = 20_000
MOST_SERIES_OF_CLIENT: Final = 300
MOST_NAMES: Final = 500
LONGEST: Final = 120
"""Characters of a metric's name, of a label and of its value."""
MOST_LABELS: Final = 8
SHORTEST_LIFE_S: Final = 60.0
LOOK_S: Final = 1.0
PREFIX: Final = "ottla_client_"
TOTAL: Final = "_total"
RESERVED: Final = (f"{PREFIX}series", f"{PREFIX}metrics_left_out_total")
"""The broker's own."""
LARGEST_PUSH: Final = 256 << 10
"""Bytes of a push that is decoded, unpacked: clients' own have some 100 KB at most."""
MOST_POINTS: Final = 2_000
"""Data points of a push that are decoded."""
BUSY_SHARE: Final = 0.05
"""Share of a core that decoding may take in the long run."""
BURST_S: Final = 1.0
CLIENT_LABELS: Final = ("client_id", "client_instance_id", "software")

_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]+")
_ORIGIN: Final = "org.apache.kafka."


class _Series(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


class _Name:
    """A metric's kind, its name as clients send it, and how many series it has."""

    __slots__ = ("kind", "sent_as", "series")

    def __init__(self, kind: Kind, sent_as: str) -> None:
        self.kind, self.sent_as, self.series = kind, sent_as, 0


class ClientFigures(NamedTuple):
    """A client, with what it has sent: its values by the metric's name as sent."""

    client_id: str
    software: str
    address: str
    at_s: float
    series: int
    values: dict[str, float]


class _Client:
    __slots__ = ("address", "at_s", "expires_s", "labels", "raw", "values")

    def __init__(self, labels: dict[str, str], address: str) -> None:
        self.labels = labels
        self.address = address
        self.at_s = self.expires_s = 0.0
        self.values: dict[_Series, float] = {}
        self.raw: dict[str, float] = {}
        """The largest value of each gauge, by its name as sent."""


class DecodingBudget:
    """How much time may go into decoding: a bucket that fills slowly. Times are seconds of a monotonic clock."""

    def __init__(self, now_s: float) -> None:
        self._left_s = BURST_S
        self._at_s = now_s

    def has_some(self, now_s: float) -> bool:
        """Whether a push may be decoded now."""
        self._left_s = min(BURST_S, self._left_s + (now_s - self._at_s) * BUSY_SHARE)
        self._at_s = now_s
        return self._left_s > 0

    def spend(self, seconds: float) -> None:
        """Decoding has taken so long."""
        self._left_s -= seconds


class ClientSeries:
    """On the loop's thread. Times are seconds of a monotonic clock."""

    def __init__(self, now_s: float) -> None:
        self.budget = DecodingBudget(now_s)
        self.left_out = {"clients": 0, "series": 0, "pushes": 0}
        """What was not taken, since the start."""
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        """The one that pushed last is the last."""
        self._names: dict[str, _Name] = {}
        self._count = 0
        self._look_at_s = now_s

    def __len__(self) -> int:
        return self._count

    def take(
        self,
        instance_id: UUID,
        client_id: str,
        software: str,
        address: str,
        metrics: Iterable[Metric],
        now_s: float,
        interval_s: float,
        *,
        is_last: bool = False,
    ) -> None:
        """Take in a push."""
        self.expire(now_s)
        client = self._clients.pop(instance_id, None)
        if is_last:
            if client is not None:
                self._drop(client)
            return
        if client is None:
            if len(self._clients) >= MOST_CLIENTS:
                self.left_out["clients"] += 1
                return
            labels = zip(CLIENT_LABELS, (client_id[:LONGEST], str(instance_id), software[:LONGEST]), strict=True)
            client = _Client(dict(labels), address)
        self._clients[instance_id] = client
        client.at_s, client.expires_s = now_s, now_s + max(SHORTEST_LIFE_S, 3 * interval_s)
        client.raw = {}
        for metric in metrics:
            self._put(client, metric)

    def expire(self, now_s: float) -> None:
        """Forget clients that have been silent for too long; looked at once a second at most."""
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        silent = [each for each, client in self._clients.items() if client.expires_s <= now_s]
        for instance_id in silent:
            self._drop(self._clients.pop(instance_id))

    def _drop(self, client: _Client) -> None:
        self._count -= len(client.values)
        for name, _ in client.values:
            known = self._names[name]
            known.series -= 1
            if not known.series:
                del self._names[name]

    def measured(self, now_s: float) -> Iterator[Measured]:
        """All series, by metric."""
        self.expire(now_s)
        by_name: dict[str, list[Sample]] = {}
        for client in self._clients.values():
            for (name, labels), value in client.values.items():
                by_name.setdefault(name, []).append(Sample({**client.labels, **dict(labels)}, value))
        for name, samples in by_name.items():
            known = self._names[name]
            doc = f"{known.sent_as}, as clients send it (KIP-714)."
            yield Measured(Family(name, known.kind, "", doc, CLIENT_LABELS), samples)

    def figures(self, now_s: float) -> list[ClientFigures]:
        """Every client, the one that pushed last first."""
        self.expire(now_s)
        return [
            ClientFigures(
                client.labels["client_id"], client.labels["software"], client.address, client.at_s,
                len(client.values), client.raw,
            )
            for client in reversed(self._clients.values())
        ]  # fmt: skip

    def _is_name(self, name: str, kind: Kind, sent_as: str) -> bool:
        """Whether a metric can have this name: none has it otherwise, neither with the suffix of counters."""
        known = self._names.get(name)
        if known is not None:
            return known.kind is kind
        other = name.removesuffix(TOTAL) if kind is Kind.COUNTER else f"{name}{TOTAL}"
        if len(self._names) >= MOST_NAMES or other in self._names or name in RESERVED or other in RESERVED:
            return False
        self._names[name] = _Name(kind, sent_as[:LONGEST])
        return True

    def _put(self, client: _Client, metric: Metric) -> None:
        if not isfinite(metric.value):
            return
        is_sum = metric.kind != "gauge"
        name = _name(metric.name, is_sum=is_sum)
        labels = {_NO_NAME.sub("_", key)[:LONGEST]: value[:LONGEST] for key, value in metric.attributes.items()}
        own = tuple(sorted((key, value) for key, value in labels.items() if _is_label(key)))[:MOST_LABELS]
        series = _Series(name, own)
        kind = Kind.COUNTER if is_sum else Kind.GAUGE
        is_new = series not in client.values
        is_too_much = is_new and (self._count >= MOST_SERIES or len(client.values) >= MOST_SERIES_OF_CLIENT)
        if is_too_much or not self._is_name(name, kind, metric.name):
            self.left_out["series"] += 1
            return
        self._count += is_new
        self._names[name].series += is_new
        if metric.kind in ("delta", "histogram"):
            client.values[series] = client.values.get(series, 0.0) + max(metric.value, 0.0)
        else:
            client.values[series] = metric.value
            client.raw[metric.name[:LONGEST]] = max(client.raw.get(metric.name[:LONGEST], metric.value), metric.value)


def _name(sent: str, *, is_sum: bool) -> str:
    """A metric's name for Prometheus: `org.apache.kafka.producer.record.send.total` is
    `ottla_client_producer_record_send_total`."""
    name = PREFIX + _NO_NAME.sub("_", sent.removeprefix(_ORIGIN)[:LONGEST]).strip("_").removesuffix(TOTAL)
    return f"{name}{TOTAL}" if is_sum else name


def _is_label(key: str) -> bool:
    return bool(key) and not key[0].isdigit() and not key.startswith("__") and key not in CLIENT_LABELS
