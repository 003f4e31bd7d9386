"""The state that a genuine metadata log adds up to, beside what genuine Kafka answers about it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

from ottla.admin import Admin
from ottla.cluster.image import MetadataImage, ResourceType
from ottla.cluster.metadata_log.state import ClusterState
from ottla.protocol.metadata_records import DelegationTokenRecord, decode_record
from ottla.protocol.schema import Struct
from ottla.quotas.entities import entity_of, values_of
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records
from tests.support.genuine import KAFKA_VERSION, cache_of, kafka_tool, maven_libs

_RECIPE: Final = Path(__file__).resolve().parents[2] / "benches" / "genuine" / "shell.xml"

TOKEN: Final = DelegationTokenRecord(
    owner="User:alice",
    requester="User:alice",
    renewers=["User:bob"],
    issue_timestamp=1,
    max_timestamp=1 << 42,
    expiration_timestamp=1 << 41,
    token_id="token",
)


class Described(NamedTuple):
    """What clients are answered about a cluster."""

    topics: dict[str, list[tuple[int, list[int], list[int]]]]
    """Leader, replicas and in-sync replicas of each partition."""
    configs: dict[str, dict[str, str]]
    """Settings of topics that are their own."""
    quotas: list[tuple[dict[str, str | None], dict[str, float]]]
    credentials: dict[str, list[int]]
    """Iterations of the credentials of each user."""

    @classmethod
    def of(cls, image: MetadataImage) -> "Described":
        """The answers that an image gives."""
        topics = {
            str(topic.name): [
                (int(part.leader), [*map(int, part.replicas)], [*map(int, part.isr)]) for part in topic.partitions
            ]
            for topic in image.topics.values()
        }
        configs = {str(name): dict(image.topic_config(name)) for name in image.topics}
        quotas, credentials = [], {}
        for (kind, name), settings in image.configs.items():
            entity = entity_of(kind, name)
            if entity is not None and values_of(entity, settings):
                quotas.append((entity.parts(), values_of(entity, settings)))
            if kind is ResourceType.USER and (found := [text for key, text in settings.items() if "SCRAM" in key]):
                credentials[name] = [int(text.rpartition("=")[2]) for text in found]
        return cls(topics, configs, sorted(quotas, key=str), credentials)


def described_by(bootstrap: str) -> Described:
    """What a genuine cluster answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {
        name: [(part.leader, part.replicas, part.isrs) for _, part in sorted(topic.partitions.items())]
        for name, topic in admin.list_topics(timeout=30).topics.items()
    }
    configs = {
        resource.name: {
            entry.name: str(entry.value)
            for entry in found.result(30).values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, found in admin.describe_configs([ConfigResource("topic", name) for name in topics]).items()
    }
    everybody: Any = admin.describe_user_scram_credentials()
    credentials = {
        user: [credential.iterations for credential in found.scram_credential_infos]
        for user, found in everybody.result(30).items()
    }
    with Admin(bootstrap) as others:
        quotas = [
            (
                {
                    kind: name or None
                    for kind, name in (
                        ("user", each.entity.user),
                        ("client-id", each.entity.client_id),
                        ("ip", each.entity.ip),
                    )
                    if name is not None
                },
                dict(each.quotas),
            )
            for each in others.list_quotas()
        ]
    return Described(topics, configs, sorted(quotas, key=str), credentials)


def part_of_log(directory: Path, before: int | None = None) -> list[bytes]:
    """The metadata records in the segments of a log, below an offset."""
    values: list[bytes] = []
    for segment in sorted(directory.glob("*.log")):
        data = memoryview(segment.read_bytes())
        for header in iter_batches(data, allow_partial_end=True):
            if not header.is_control:
                values += [
                    record.value
                    for record in decode_records(data, header)
                    if record.value is not None and (before is None or record.offset < before)
                ]
    return values


def replayed(values: Iterable[bytes]) -> ClusterState:
    """The state of these records."""
    state = ClusterState("cluster")
    state.replay_all(values)
    return state


def unordered(values: Iterable[bytes]) -> list[str]:
    """The records with all that has no order in an order: Java's maps have none."""
    return sorted(repr((version, _sorted(record))) for record, version in map(decode_record, values))


def _sorted(value: Any) -> Any:
    if isinstance(value, Struct):
        return type(value).__name__, {name: _sorted(getattr(value, name)) for name in sorted(value.__annotations__)}
    if isinstance(value, list) and value and isinstance(value[0], Struct):
        return sorted((_sorted(each) for each in value), key=repr)
    return value


def metadata_shell(snapshot: Path, *words: str) -> str:
    """What a command of Kafka's metadata shell writes about a snapshot."""
    jars = maven_libs(_RECIPE, cache_of("shell"), KAFKA_VERSION) / "*"
    arguments: Sequence[str] = ("--snapshot", str(snapshot), *words)
    return kafka_tool("org.apache.kafka.shell.MetadataShell", *arguments, classes=jars).stdout
