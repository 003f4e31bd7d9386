"""Offsets of sinks, which are those of their consumer groups, in the shapes of KIP-875."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.connect.api import Sink
from ottla.connect.clients.groups import UNTIL_ANSWERED_S
from ottla.connect.clients.offset_deletion import GroupHasMembers, delete_offsets
from ottla.connect.errors import ConnectError, Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.records import TopicPartition as Partition
from ottla.connect.runtime.connector_config import parsed, with_defaults
from ottla.connect.runtime.plugins import check_paths, connector_class
from ottla.connect.runtime.sink_task import group_of
from ottla.connect.runtime.task import BasicContext, WorkerEnvironment
from ottla.waiting import tries

_ANSWER_S: Final = 20.0
_NO_ANSWER: Final = f"no answer within {_ANSWER_S:.0f} s"
_LEAVES_WITHIN_S: Final = 3.0
_REST_S: Final = 0.2
_HAS_MEMBERS: Final = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP)
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library leaves it untyped


def committed(name: str, config: Mapping[str, str], environment: WorkerEnvironment) -> list[dict[str, Any]]:
    """`{"partition": {"kafka_topic", "kafka_partition"}, "offset": {"kafka_offset"}}` for each. Raises Retriable."""
    config = environment.secrets.resolve(config)  # what is stored has placeholders
    places = _committed(_admin(config, environment), group_of(name, config))
    return [
        {
            "partition": {"kafka_topic": each.topic, "kafka_partition": each.partition},
            "offset": {"kafka_offset": each.offset},
        }
        for each in places
    ]


def lag(name: str, config: Mapping[str, str], environment: WorkerEnvironment) -> list[dict[str, Any]]:
    """`{"topic", "partition", "offset", "end", "lag"}` for each. Raises Retriable."""
    config = environment.secrets.resolve(config)
    admin = _admin(config, environment)
    places = _committed(admin, group_of(name, config))
    try:
        asked = admin.list_offsets(
            {TopicPartition(each.topic, each.partition): _LATEST for each in places}, request_timeout=_ANSWER_S
        )
        ends = {(place.topic, place.partition): future.result(_ANSWER_S).offset for place, future in asked.items()}
    except KafkaException as failure:
        raise Retriable(f"the ends of the topics cannot be read: {failure.args[0].str()}") from None
    except TimeoutError:
        raise Retriable(f"the ends of the topics cannot be read: {_NO_ANSWER}") from None
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "end": ends[each.topic, each.partition],
            "lag": max(0, ends[each.topic, each.partition] - each.offset),
        }
        for each in places
    ]


def alter(name: str, config: Mapping[str, str], offsets: list[Any], environment: WorkerEnvironment) -> None:
    """Store the offsets of a request in the group, and then in the target, if it keeps offsets.

    The group accepts them only when no task is left, so none writes to the target any more. Raises ValueError for an
    invalid offset, ConnectError.
    """
    wanted = [_parsed(each) for each in offsets]
    config = environment.secrets.resolve(config)
    connector = _alterable(config, environment)
    admin, group = _admin(config, environment), group_of(name, config)
    places = [TopicPartition(topic, number, offset) for topic, number, offset in wanted if offset is not None]
    forgotten = {(topic, number) for topic, number, offset in wanted if offset is None}
    if forgotten:
        _when_tasks_have_left(lambda: delete_offsets(environment.client("admin", config), group, forgotten))
    if places:
        request = [ConsumerGroupTopicPartitions(group, places)]
        _when_tasks_have_left(
            lambda: _done(admin.alter_consumer_group_offsets(request, request_timeout=UNTIL_ANSWERED_S), group)
        )
    in_target = {Partition(topic, number): offset for topic, number, offset in wanted}
    _alter_in_target(connector, name, config, in_target, environment)


def reset(name: str, config: Mapping[str, str], environment: WorkerEnvironment) -> None:
    """Forget all offsets, in the target too if it keeps them. Raises ConnectError."""
    config = environment.secrets.resolve(config)
    connector = _alterable(config, environment)
    admin, group = _admin(config, environment), group_of(name, config)
    _when_tasks_have_left(lambda: _reset(admin, group))
    _alter_in_target(connector, name, config, None, environment)


def _when_tasks_have_left(change: Callable[[], None]) -> None:
    """A task that has just been stopped may take a moment to leave its group. Raises what `change` raises."""
    problem: GroupHasMembers | None = None
    for _ in tries(_LEAVES_WITHIN_S, every_s=_REST_S):
        try:
            change()
        except GroupHasMembers as error:
            problem = error
        else:
            return
    assert problem is not None
    raise problem


def _alterable(config: Mapping[str, str], environment: WorkerEnvironment) -> type[Sink[Any]]:
    """The sink. Raises ConnectError if it keeps offsets that it cannot change."""
    connector = connector_class(config.get("connector.class"), environment.permissions)
    assert issubclass(connector, Sink)
    if connector.positions is not Sink.positions and connector.alter_offsets is Sink.alter_offsets:
        raise ConnectError(
            f"{connector.__name__} keeps offsets in the target, and has no alter_offsets to change them there"
        )
    return connector


def _alter_in_target(
    connector: type[Sink[Any]],
    name: str,
    config: Mapping[str, str],
    offsets: Mapping[Partition, int | None] | None,
    environment: WorkerEnvironment,
) -> None:
    settings = parsed(connector.settings_model, with_defaults(connector, config))
    check_paths(connector, settings, environment.permissions)
    sink = connector(settings, BasicContext(TaskId(name, -1), environment.client("admin", config)))
    try:
        sink.open([])
        sink.alter_offsets(offsets)
    finally:
        sink.close()


def _reset(admin: AdminClient, group: str) -> None:
    _done(admin.delete_consumer_groups([group], request_timeout=UNTIL_ANSWERED_S), group)


def _admin(config: Mapping[str, str], environment: WorkerEnvironment) -> AdminClient:
    return AdminClient(environment.client("admin", config))


def _committed(admin: AdminClient, group: str) -> list[TopicPartition]:
    try:
        request = [ConsumerGroupTopicPartitions(group)]
        asked = admin.list_consumer_group_offsets(request, request_timeout=UNTIL_ANSWERED_S)
        places = asked[group].result(_ANSWER_S).topic_partitions or []
    except KafkaException as failure:
        raise Retriable(f"the offsets of group {group} cannot be read: {failure.args[0].str()}") from None
    except TimeoutError:
        raise Retriable(f"the offsets of group {group} cannot be read: {_NO_ANSWER}") from None
    return sorted((each for each in places if each.offset >= 0), key=lambda each: (each.topic, each.partition))


def _done(asked: Mapping[str, Any], group: str) -> None:
    """Wait for the answers of all partitions; that there is no such group is as good as what was wanted."""
    try:
        answers = [future.result(_ANSWER_S) for future in asked.values()]
        refused = next((each.error for one in answers for each in _partitions(one) if each.error is not None), None)
    except KafkaException as failure:
        refused = failure.args[0]
    except TimeoutError:
        raise Retriable(f"the offsets of group {group} cannot be changed: {_NO_ANSWER}") from None
    if refused is not None and refused.code() != KafkaError.GROUP_ID_NOT_FOUND:
        problem = f"the offsets of group {group} cannot be changed: {refused.str()}"
        raise GroupHasMembers(problem) if refused.code() in _HAS_MEMBERS else Retriable(problem)


def _partitions(answer: Any) -> list[TopicPartition]:
    return getattr(answer, "topic_partitions", None) or []


def _parsed(each: Any) -> tuple[str, int, int | None]:
    part = each.get("partition") if isinstance(each, Mapping) else None
    if not isinstance(part, Mapping):
        raise ValueError("The partition for a sink connector offset cannot be null or missing")
    if "kafka_topic" not in part or "kafka_partition" not in part:
        raise ValueError(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'"
        )
    number = _integer(
        part["kafka_partition"],
        "Failed to parse the following Kafka partition value in the provided offsets: '{}'. "
        "Partition values for sink connectors need to be integers.",
    )
    offset = each.get("offset")
    if offset is None:
        return str(part["kafka_topic"]), number, None
    if not isinstance(offset, Mapping) or "kafka_offset" not in offset:
        raise ValueError("The offset for a sink connector should either be null or contain the key 'kafka_offset'")
    value = _integer(
        offset["kafka_offset"],
        "Failed to parse the following Kafka offset value in the provided offsets: '{}'. "
        "Offset values for sink connectors need to be integers.",
    )
    if value < 0:
        raise ValueError(f"The offset {value} of partition {number} of topic {part['kafka_topic']} is negative")
    return str(part["kafka_topic"]), number, value


def _integer(value: Any, otherwise: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ValueError(otherwise.format(value)) from None
