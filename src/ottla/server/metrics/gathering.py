"""What a scrape gathers of a broker: read from its parts, on the loop's thread, in steps between which others go on."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla import __version__
from ottla.ids import TopicName
from ottla.metrics.histogram import QUANTILES, Durations
from ottla.metrics.process import BUILD, LOG_LINES, UPTIME
from ottla.protocol.api import ApiKey, api_name
from ottla.server.metrics import catalog

if TYPE_CHECKING:
    from ottla.cluster.image import MetadataImage
    from ottla.metrics.families import Family, Measurements
    from ottla.metrics.log_lines import LogLines
    from ottla.replication.compaction import Compaction
    from ottla.replication.partition import Partition
    from ottla.server.context import Services
    from ottla.server.metrics.error_counts import ErrorCounts
    from ottla.server.metrics.loop_delay import LoopDelay
    from ottla.server.metrics.request_meter import RequestMeter
    from ottla.slices import Steps

MILLISECONDS: Final = 1e3
PARTITIONS_PER_STEP: Final = 64
MOST_DIRTY: Final = 100
"""Logs to compact that have series of their own: those with the most bytes."""
LATE_MS: Final = 300_000
"""Time beyond transaction.max.timeout.ms in which coordinators may still end a transaction, as in Kafka."""
PRODUCERS: Final = "producers"
PRODUCER_BYTES: Final = 1_200
"""What a producer with five remembered batches takes in memory, about."""


class Meters(NamedTuple):
    """What counts while metrics are switched on."""

    requests: "RequestMeter"
    loop_delay: "LoopDelay"
    log_lines: "LogLines"
    began: float
    """When the broker was started, on the clock that never goes back."""
    errors: "ErrorCounts"
    compaction: "Compaction | None" = None


class Limits(NamedTuple):
    """How many series there may be."""

    topics: int
    """Topics with series of their own (metrics.topics.max)."""
    groups: int


def gather_process(meters: Meters, connections: Mapping[str, int], now: float, to: "Measurements") -> "Steps[None]":
    """What a broker and a controller alone have in common; `connections` by listener."""
    to.add(BUILD, 1, __version__)
    to.add(UPTIME, now - meters.began)
    _quantiles(to, catalog.LOOP_DELAY, meters.loop_delay.durations, now)
    for level, count in meters.log_lines.counts.items():
        to.add(LOG_LINES, count, level)
    for listener, count in connections.items():
        to.add(catalog.CONNECTIONS, count, listener)
    yield
    yield from _requests(meters.requests, now, to)
    for api_key, error, count in meters.errors.by_name():
        to.add(catalog.ERRORS, count, api_name(api_key), error)


def gather_broker(services: "Services", meters: Meters, to: "Measurements") -> "Steps[None]":
    """Everything but topics and groups."""
    now = services.clock.monotonic()
    yield from gather_process(meters, services.listeners.connection_counts(), now, to)
    to.add(catalog.MEMORY, services.memory.held_bytes)
    to.add(catalog.MEMORY_LIMIT, services.memory.limit_bytes)
    to.add(catalog.PARKED_FETCHES, len(services.replicas.parked_fetches))
    to.add(catalog.SHARE_PARTITIONS, len(services.share_partitions))
    if meters.compaction is not None:
        _compaction(meters.compaction, to)
    _memory(services, to)
    yield
    yield from _throttling(services, to)
    yield from _image(services, to)
    yield from _replicas(services, to)
    for directory in services.replicas.directories.directories:
        name = str(directory.path)
        to.add(catalog.DIRECTORY_ONLINE, directory in services.replicas.directories.online, name)
        to.add(catalog.DIRECTORY_FULL, directory.is_full, name)
    for path, flusher in services.replicas.flushers().items():
        to.add_quantiles(catalog.SYNC_ROUNDS, (), flusher.rounds, flusher.round_s, str(path))
        to.add(catalog.SYNCED, flusher.synced, str(path))
    yield


def _compaction(compaction: "Compaction", to: "Measurements") -> None:
    to.add(catalog.UNCLEANABLE, len(compaction.uncleanable))
    to.add(catalog.DIRTY_LOGS, len(compaction.debt))
    to.add(catalog.DIRTY, sum(dirty_bytes for dirty_bytes, _ in compaction.debt.values()))
    for (topic, partition), (dirty_bytes, ratio) in nlargest(MOST_DIRTY, compaction.debt.items(), key=itemgetter(1)):
        to.add(catalog.DIRTY_BYTES, dirty_bytes, topic, str(partition))
        to.add(catalog.DIRTY_RATIO, ratio, topic, str(partition))


def _memory(services: "Services", to: "Measurements") -> None:
    for owner, held in (
        ("requests", services.memory.held_bytes),
        ("client metrics", services.telemetry.kept_bytes),
    ):
        to.add(catalog.MEMORY_BY_OWNER, held, owner)


def _throttling(services: "Services", to: "Measurements") -> "Steps[None]":
    enforced = services.quotas.enforced
    if enforced is None:
        return
    for kind, (count, throttled_ms) in enforced.throttled.items():
        to.add(catalog.THROTTLED, count, kind)
        to.add(catalog.THROTTLE_TIME, throttled_ms / MILLISECONDS, kind)
    waiting = Counter(used.kind for used in (yield from enforced.usage()) if used.throttled_ms > 0)
    for kind in enforced.limits:
        to.add(catalog.THROTTLED_CLIENTS, waiting[kind], kind)


def measure_disks(paths: Iterable[str], to: "Measurements") -> None:
    """The room in the log directories; may wait for a disk, so in a thread."""
    for path in paths:
        try:
            found = os.statvfs(path)
        except OSError:
            continue  # a failed directory, which has its own metric
        to.add(catalog.DIRECTORY_FREE, found.f_bavail * found.f_frsize, path)


def _requests(meter: "RequestMeter", now: float, to: "Measurements") -> "Steps[None]":
    for key, api in meter.by_api.items():
        name = api_name(key)
        for version, count in api.by_version.items():
            to.add(catalog.REQUESTS, count, name, str(version))
        for family, durations in (
            (catalog.TOTAL_TIME, api.total),
            (catalog.LOCAL_TIME, api.local),
            (catalog.REMOTE_TIME, api.remote),
        ):
            _quantiles(to, family, durations, now, name, factor=MILLISECONDS)
        request_bytes, reply_bytes = api.bytes_
        to.add(catalog.REQUEST_BYTES, request_bytes, name)
        to.add(catalog.REPLY_BYTES, reply_bytes, name)
        yield
    for family, key in ((catalog.PRODUCE_REQUESTS, ApiKey.PRODUCE), (catalog.FETCH_REQUESTS, ApiKey.FETCH)):
        api_counts = meter.by_api.get(key)
        to.add(family, 0 if api_counts is None else api_counts.total.count)


def _quantiles(
    to: "Measurements", family: "Family", durations: Durations, now: float, *labels: str, factor: float = 1.0
) -> None:
    values = durations.quantiles(now)
    quantiles = [(str(share), value * factor) for share, value in zip(QUANTILES, values, strict=True)]
    to.add_quantiles(family, quantiles, durations.count, durations.total_s * factor, *labels)


def _image(services: "Services", to: "Measurements") -> "Steps[None]":
    """What the controller reports of the cluster. A lone broker is its own controller, and a quorum's report it."""
    image, membership = services.metadata.image, services.membership
    to.add(catalog.BROKERS, len(image.brokers))
    if services.cluster is None:
        yield from gather_cluster(image, to, is_controller=True)
    elif membership is not None:
        yield from gather_cluster(image, to, is_controller=image.controller_id == services.metadata.broker_id)


def gather_cluster(image: "MetadataImage", to: "Measurements", *, is_controller: bool) -> "Steps[None]":
    """What the controller reports of the cluster; the others report that it is not theirs."""
    to.add(catalog.ACTIVE_CONTROLLER, is_controller)
    offline = imbalanced = partitions = 0
    for number, topic in enumerate(image.topics.values() if is_controller else ()):
        partitions += len(topic.partitions)
        for part in topic.partitions:
            offline += part.leader < 0
            imbalanced += part.leader >= 0 and part.leader != part.replicas[0]
        if number % PARTITIONS_PER_STEP == 0:
            yield
    to.add(catalog.TOPICS, len(image.topics) if is_controller else 0)
    to.add(catalog.ALL_PARTITIONS, partitions)
    to.add(catalog.OFFLINE_PARTITIONS, offline)
    to.add(catalog.IMBALANCE, imbalanced)


def _replicas(services: "Services", to: "Measurements") -> "Steps[None]":
    partitions = services.replicas.partitions()
    counts: Counter[str] = Counter()
    oldest = 0
    now_ms, longest_ms = services.clock.now_ms(), services.metadata.config.transaction_max_timeout_ms + LATE_MS
    for number, partition in enumerate(partitions):
        if number % PARTITIONS_PER_STEP == 0:
            yield
        if not partition.leading:
            continue
        log = partition.log
        counts[catalog.LEADERS.name] += 1
        counts[catalog.OPEN_TRANSACTIONS.name] += log.producer_state.open_transactions
        oldest = max(oldest, log.high_watermark - log.last_stable_offset)
        if log.producer_state.open_transactions:
            late = log.producer_state.late_transactions(now_ms, longest_ms)
            counts[catalog.HANGING_TRANSACTIONS.name] += late
            counts[catalog.LATE_PARTITIONS.name] += late > 0
        counts[PRODUCERS] += len(log.producer_state.producers)
        in_sync, needed = len(partition.isr), partition.min_in_sync
        counts[catalog.UNDER_REPLICATED.name] += in_sync < len(partition.replicas)
        counts[catalog.UNDER_MIN_ISR.name] += in_sync < needed
        counts[catalog.AT_MIN_ISR.name] += len(partition.replicas) > 1 and in_sync == needed
        if partition.in_sync is not None:
            _follower_lag(partition, to)
    to.add(catalog.PARTITIONS, len(partitions))
    for family in (
        catalog.LEADERS,
        catalog.UNDER_REPLICATED,
        catalog.UNDER_MIN_ISR,
        catalog.AT_MIN_ISR,
        catalog.OPEN_TRANSACTIONS,
        catalog.HANGING_TRANSACTIONS,
        catalog.LATE_PARTITIONS,
    ):
        to.add(family, counts[family.name])
    to.add(catalog.PRODUCERS, counts[PRODUCERS])
    to.add(catalog.MEMORY_BY_OWNER, counts[PRODUCERS] * PRODUCER_BYTES, "idempotent producers")
    to.add(catalog.OLDEST_TRANSACTION, oldest)
    to.add(catalog.OFFLINE_REPLICAS, services.replicas.offline_count())


def _follower_lag(partition: "Partition", to: "Measurements") -> None:
    assert partition.in_sync is not None
    end = partition.log.log_end_offset
    for replica, follower in partition.in_sync.followers.items():
        if 0 <= follower.end_offset < end:
            topic, number = partition.topic_partition
            to.add(catalog.FOLLOWER_LAG, end - follower.end_offset, topic, str(number), str(replica))


def gather_clients(services: "Services", to: "Measurements") -> "Steps[None]":
    """What clients have pushed of themselves (KIP-714)."""
    series = services.telemetry.series
    if series is None:
        return
    to.add(catalog.CLIENT_SERIES, len(series))
    for what, count in series.left_out.items():
        to.add(catalog.CLIENT_LEFT_OUT, count, what)
    yield
    for measured in series.measured(services.clock.monotonic()):
        to.of(measured.family).samples.extend(measured.samples)
        yield


def gather_topics(services: "Services", limits: Limits, to: "Measurements") -> "Steps[frozenset[str]]":
    """The series of topics, internal ones too; returns the topics that have them."""
    throughput = services.replicas.throughput
    families = (
        (catalog.MESSAGES_IN, "produced_records"),
        (catalog.BYTES_IN, "produced_bytes"),
        (catalog.BYTES_OUT, "fetched_bytes"),
        (catalog.REPLICATION_IN, "replicated_in_bytes"),
        (catalog.REPLICATION_OUT, "replicated_out_bytes"),
    )
    total = throughput.total()
    for family, counted in families:
        to.add(family, getattr(total, counted))
    by_topic = sorted(throughput)
    shown = by_topic[: limits.topics]
    to.add(catalog.LEFT_OUT, len(by_topic) - len(shown), "topics")
    for number, (topic, counts) in enumerate(shown):
        if number % PARTITIONS_PER_STEP == 0:
            yield
        for family, counted in families:
            to.add(family, getattr(counts, counted), topic)
    names = frozenset(topic for topic, _ in shown)
    yield from _partitions(services.replicas.partitions(), names, services.metadata.image, to)
    return names


def _partitions(
    partitions: "Iterable[Partition]", shown: frozenset[str], image: "MetadataImage", to: "Measurements"
) -> "Steps[None]":
    sizes: Counter[str] = Counter()
    log_size, newest, oldest = map(to.of, (catalog.LOG_SIZE, catalog.NEWEST_OFFSET, catalog.OLDEST_OFFSET))
    for number, partition in enumerate(partitions):
        if number % PARTITIONS_PER_STEP == 0:
            yield
        topic, index = partition.topic_partition
        if topic not in shown:
            continue
        label, log = str(index), partition.log
        size = log.size_bytes
        sizes[topic] += size
        log_size.add(size, topic, label)
        if partition.leading:
            newest.add(log.high_watermark, topic, label)
            oldest.add(log.log_start_offset, topic, label)
    for name, size in sizes.items():
        to.add(catalog.TOPIC_SIZE, size, name)
        known = image.topics.get(TopicName(name))
        if known is not None:
            to.add(catalog.TOPIC_PARTITIONS, len(known.partitions), name)
