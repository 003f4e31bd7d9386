"""Options of the source and the sink: Spark's names, checked before anything is read or written."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from ottla.spark.client_settings import ClientSettings, client_settings
from ottla.spark.errors import OptionError
from ottla.spark.offsets import EARLIEST, LATEST, Partition
from ottla.spark.selection import Assigned, AtTime, Pattern, Position, Selection, Topics, reads_nothing

_MISSING_S: Final = 30.0
_SELECTING: Final = ("subscribe", "subscribePattern", "assign")
DELEGATION_TOKENS: Final = "delegationTokens"
"""Not Spark's: see `ottla.spark.delegation`."""
IDLE_AFTER_MS: Final = "idleAfterMs"
ALIGNED_WITH: Final = "alignedWith"
CHECKPOINTS: Final = "checkpoints"
"""Not Spark's, and without effect on a read: by these a job's watermark knows an input that may be idle, the flows that
write an input, and where the checkpoints of the run are (`ottla.pipeline.rows.idle` and `aligned`)."""
_ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAMING: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "firstOffsetsPerTrigger")
_READ: Final = (
    *_SELECTING,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_ENDING,
    *_STREAMING,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    DELEGATION_TOKENS,
    "pushDownFilters",  # not Spark's; see `ottla.spark.reader.NarrowingReader`
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    IDLE_AFTER_MS,
    ALIGNED_WITH,
    CHECKPOINTS,
    "groupIdPrefix",  # without effect: of the consumers of Spark's own source
)
_WRITE: Final = ("topic", "includeHeaders", "deliveryGuarantee", DELEGATION_TOKENS)
_GUARANTEES: Final = ("exactly-once", "at-least-once")
_SPARK_OWN: Final = ("path", "checkpointLocation", "queryName")  # handed to every source and sink by Spark itself
_CLIENT_PREFIX: Final = "kafka."
_BOOTSTRAP: Final = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. `group_id` None: the progress of the query is not committed to a group."""

    client: ClientSettings
    selection: Selection
    starting: Position
    ending: Position
    max_offsets_per_trigger: int | None
    first_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    min_partitions: int
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    group_id: str | None
    attempts: int
    retry_pause_s: float
    push_down_filters: bool
    delegates: bool

    @property
    def away_s(self) -> float:
        """How long the brokers may be out of reach while a query runs."""
        return 60.0 * self.attempts

    @property
    def missing_s(self) -> float:
        """How long, while a query runs, brokers may say that a topic does not exist before that is believed: one that
        has just started may know of none. Longer where the query would go on without the topic's records."""
        return min(_MISSING_S, self.away_s) if self.fail_on_data_loss else self.away_s

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> "ReadOptions":
        """`streaming` None: it is not known yet, so what only one kind of query refuses passes.

        Raises OptionError, naming the option and what it should be.
        """
        given = _lower(options)
        _refuse_unknown(given, _READ)
        selection = _selection(given)
        if streaming:
            for name in _ENDING:
                if name.lower() in given:
                    raise OptionError(f"'{name}' is for batch reads; a streaming query has no end")
        starting = _position(given, "starting", "latest" if streaming else "earliest", selection)
        ending = _position(given, "ending", "latest", selection)
        if streaming is False and reads_nothing(starting, as_start=True):
            raise OptionError("'startingOffsets' cannot be 'latest' for a batch read: it would read nothing")
        if reads_nothing(ending, as_start=False):
            raise OptionError("'endingOffsets' cannot be the earliest offset (-2): it would read nothing")
        most, least = _positive(given, "maxOffsetsPerTrigger"), _positive(given, "minOffsetsPerTrigger")
        beginning = _positive(given, "firstOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise OptionError(f"'minOffsetsPerTrigger' ({least}) is above 'maxOffsetsPerTrigger' ({most})")
        return cls(
            client=client_settings(given),
            selection=selection,
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=most,
            first_offsets_per_trigger=beginning,
            min_offsets_per_trigger=least,
            max_trigger_delay_s=_duration_s(given, "maxTriggerDelay", "15m"),
            min_partitions=_positive(given, "minPartitions") or 0,
            max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            include_headers=_flag(given, "includeHeaders", default=False),
            poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or 120_000,
            group_id=given.get("kafka.group.id"),
            attempts=1 + _whole(given, "fetchOffset.numRetries", 3),
            retry_pause_s=_whole(given, "fetchOffset.retryIntervalMs", 10) / 1000,
            push_down_filters=_flag(given, "pushDownFilters", default=False),
            delegates=_flag(given, DELEGATION_TOKENS, default=False),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. `topic` None: the column `topic` names the topic of each row."""

    client: ClientSettings
    topic: str | None
    exactly_once: bool
    delegates: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "WriteOptions":
        """Raises OptionError, naming the option and what it should be."""
        given = _lower(options)
        _refuse_unknown(given, _WRITE)
        guarantee = given.get("deliveryguarantee", "exactly-once" if streaming else "at-least-once").lower()
        if guarantee not in _GUARANTEES:
            raise OptionError(f"'deliveryGuarantee' is {' or '.join(_GUARANTEES)}, not '{guarantee}'")
        exactly_once = guarantee == "exactly-once"
        client = client_settings(given)
        if exactly_once and "transactional.id" in dict(client):
            raise OptionError("'kafka.transactional.id' cannot be set: each task has its own")
        delegates = _flag(given, DELEGATION_TOKENS, default=False)
        return cls(client=client, topic=given.get("topic"), exactly_once=exactly_once, delegates=delegates)


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    """Spark's option names know no case, and arrive in whichever case Spark kept."""
    return {name.lower(): value for name, value in options.items()}


def _refuse_unknown(given: dict[str, str], known: tuple[str, ...]) -> None:
    names = {name.lower(): name for name in (*known, *_SPARK_OWN, _BOOTSTRAP)}
    for option in given:
        if option in names or option.startswith(_CLIENT_PREFIX):
            continue
        near = get_close_matches(option, names, n=1)
        hint = f"; did you mean '{names[near[0]]}'?" if near else f"; known are: {', '.join(names.values())}"
        raise OptionError(f"unknown option '{option}'{hint}")


def _positive(given: dict[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise OptionError(f"'{name}' must be a whole number above 0, it is '{text}'")
    return int(text)


def _whole(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"'{name}' must be a whole number, it is '{text}'")
    return int(text)


def _flag(given: dict[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"'{name}' must be true or false, it is '{text}'")
    return text == "true"


def _selection(given: dict[str, str]) -> Selection:
    named = [name for name in _SELECTING if name.lower() in given]
    if len(named) != 1:
        found = f"there are {' and '.join(named)}" if named else "none is there"
        raise OptionError(
            "topics are named by exactly one of 'subscribe' (names, separated by commas), 'subscribePattern' (a "
            f"regular expression) and 'assign' (JSON such as {{\"topic\": [0, 1]}}); {found}"
        )
    (name,) = named
    text = given[name.lower()]
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"'subscribePattern' is no regular expression: {error}; it is '{text}'") from None
        return Pattern(text)
    if name == "assign":
        return Assigned(_partitions(text))
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError("the option 'subscribe' names the topics to read, separated by commas; it names none")
    return Topics(topics)


def _partitions(text: str) -> tuple[Partition, ...]:
    shape = f"'assign' must be JSON such as {{\"topic\": [0, 1]}}; it is '{text}'"
    try:
        parsed = json.loads(text)
        found = [Partition(topic, number) for topic, numbers in parsed.items() for number in numbers]
    except (ValueError, AttributeError, TypeError):
        raise OptionError(shape) from None
    if not found or not all(type(each.number) is int and each.number >= 0 for each in found):
        raise OptionError(shape)
    return tuple(sorted(set(found)))


def _position(given: dict[str, str], kind: str, default: str, selection: Selection) -> Position:
    """The `starting` or `ending` position, from the option that comes first in Spark's order: one time for all, a time
    for
    each partition, offsets."""
    latest_if_none = kind == "ending" or _strategy(given) == "latest"
    one_time = f"{kind}Timestamp"
    if one_time.lower() in given:
        text = given[one_time.lower()]
        if not text.isascii() or not text.isdigit():
            raise OptionError(f"'{one_time}' is a time in milliseconds since 1970, it is '{text}'")
        return AtTime(int(text), None, latest_if_none)
    times = f"{kind}OffsetsByTimestamp"
    if times.lower() in given:
        text = given[times.lower()]
        shape = f"'{times}' must be JSON such as {{\"topic\": {{\"0\": 1700000000000}}}}; it is '{text}'"
        return AtTime(None, _by_partition(text, times, shape, selection, lambda time: time >= 0), latest_if_none)
    name = f"{kind}Offsets"
    text = given.get(name.lower(), default).strip()
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    shape = f'\'{name}\' must be earliest, latest or JSON such as {{"topic": {{"0": 23, "1": -2}}}}; it is \'{text}\''
    return _by_partition(text, name, shape, selection, lambda offset: offset >= EARLIEST)


def _by_partition(
    text: str, name: str, shape: str, selection: Selection, is_valid: Callable[[int], bool]
) -> dict[str, dict[int, int]]:
    try:
        parsed: dict[str, dict[str, Any]] = json.loads(text)
        found = {
            topic: {int(number): value for number, value in partitions.items()} for topic, partitions in parsed.items()
        }
    except (ValueError, AttributeError):
        raise OptionError(shape) from None
    if not all(
        type(value) is int and is_valid(value) for partitions in found.values() for value in partitions.values()
    ):
        raise OptionError(shape)
    if isinstance(selection, Topics) and set(found) != set(selection.names):
        raise OptionError(
            f"'{name}' is for the topics {sorted(found)}, but 'subscribe' names {sorted(selection.names)}"
        )
    if isinstance(selection, Assigned):
        named = {Partition(topic, number) for topic, numbers in found.items() for number in numbers}
        if named != set(selection.partitions):
            wanted = ", ".join(map(str, selection.partitions))
            raise OptionError(f"'{name}' is for {', '.join(map(str, sorted(named)))}, but 'assign' names {wanted}")
    return found


def _strategy(given: dict[str, str]) -> str:
    name = "startingOffsetsByTimestampStrategy"
    text = given.get(name.lower(), "error").lower()
    if text not in ("error", "latest"):
        raise OptionError(f"'{name}' is error or latest, it is '{text}'")
    return text


def _duration_s(given: dict[str, str], name: str, default: str) -> float:
    """As Spark writes durations: 500ms, 30s, 15m, 1h, 1d; a bare number is milliseconds."""
    text = given.get(name.lower(), default).strip().lower()
    found = re.fullmatch(r"(\d+) *(ms|s|m|min|h|d)?", text)
    if found is None:
        raise OptionError(f"'{name}' must be a duration such as 30s or 15m, it is '{text}'")
    seconds = {None: 0.001, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
    return int(found[1]) * seconds[found[2]]
