"""What a mirror asks of the two clusters: their topics, ids, settings, and the offsets of groups."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.clients.groups import UNTIL_ANSWERED_S
from ottla.connect.clients.identities import topic_ids
from ottla.connect.errors import of_brokers

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

TIMEOUT_S: Final = 10
_HEAR_S: Final = 0.2
_NOT_COPIED: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "message.timestamp.type"}
)


def open_admin(client: Mapping[str, Any], refusals: "list[KafkaError]") -> "AdminClient":
    """`refusals` gets the errors that brokers report beside the results."""
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {**client, "error_cb": refusals.append}
    return AdminClient(settings)


def count_partitions(admin: "AdminClient", where: str, refusals: "list[KafkaError]") -> dict[str, int]:
    """Numbers of partitions by topic. Raises Retriable if no broker answers, ConnectError if the login is refused."""
    from confluent_kafka import KafkaError, KafkaException

    refusals.clear()

    try:
        found = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        admin.poll(_HEAR_S)  # only then does the library report errors
        login = next((each for each in refusals if each.code() == KafkaError._AUTHENTICATION), None)
        if login is not None:
            raise ConnectError(
                f"{where} refuses the login: {login.str()}; check source.cluster.security.protocol and "
                "source.cluster.sasl.mechanism, username and password"
            ) from error
        raise Retriable(f"no answer from {where}: {error}") from error
    return {name: len(each.partitions) for name, each in found.items()}


def cluster_id(admin: "AdminClient") -> str:
    """Raises Retriable if no broker answers."""
    from confluent_kafka import KafkaException

    try:
        return str(admin.list_topics(timeout=TIMEOUT_S).cluster_id)
    except KafkaException as error:
        raise Retriable(f"no answer to a question for the cluster's id: {error}") from error


def known_ids(admin: "AdminClient", topics: list[str]) -> dict[str, str]:
    """Ids of topics, of those that are there and have one. Raises Retriable, ConnectError."""
    return {topic: each for topic, each in topic_ids(admin, topics).items() if each is not None}


def own_configs(admin: "AdminClient", topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of each topic itself."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = {}
    for resource, answer in admin.describe_configs(resources, request_timeout=TIMEOUT_S).items():
        entries = result_of(answer, f"asking for the settings of topic {resource.name}")
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        found[str(resource.name)] = {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == own and entry.value is not None and name not in _NOT_COPIED
        }
    return found


def committed_offsets(admin: "AdminClient", group: str) -> list[Any]:
    """The partitions for which a group has committed offsets, with these. Raises as `answered`."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = [ConsumerGroupTopicPartitions(group)]
    (answer,) = admin.list_consumer_group_offsets(request, request_timeout=UNTIL_ANSWERED_S).values()
    found = answered(answer, f"asking for the offsets of group {group}")
    return [each for each in found.topic_partitions or [] if each.offset >= 0]


def answered(answer: Any, doing: str) -> Any:
    """What a coordinator answered. Raises KafkaException, and Retriable, after which the client is let go of."""
    try:
        return answer.result(TIMEOUT_S)
    except TimeoutError as error:
        raise Retriable(f"{doing} failed: no answer within {TIMEOUT_S} s") from error


def wait_for(answers: Mapping[Any, Any], doing: str) -> None:
    """Wait until all is done. Raises as `result_of`."""
    for answer in answers.values():
        result_of(answer, doing)


def result_of(answer: Any, doing: str) -> Any:
    """What the brokers answered. Raises Retriable, ConnectError."""
    from confluent_kafka import KafkaException

    try:
        return answered(answer, doing)
    except KafkaException as error:
        found = error.args[0]
        raise of_brokers(found, f"{doing} failed: {found.str()}") from error
