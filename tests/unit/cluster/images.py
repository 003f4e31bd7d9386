"""Images of small clusters, for tests."""

from uuid import UUID

from ottla.cluster.commands import CreateTopic, RegisterBroker, SetController, apply
from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, empty_image
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName


def cluster(*broker_ids: int, racks: dict[int, str] | None = None, confirm: bool = False) -> MetadataImage:
    """Brokers that are alive; the first is the controller. `confirm`: they do, when they are elected."""
    commands = [
        RegisterBroker(
            BrokerImage(
                BrokerId(number),
                1,
                (racks or {}).get(number),
                {"PLAINTEXT": ("h", 9000 + number)},
                confirms_leadership=confirm,
            )
        )
        for number in broker_ids
    ]
    return apply(empty_image("cluster"), [*commands, SetController(BrokerId(broker_ids[0]))])


def partition(
    number: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...] | None = None
) -> PartitionImage:
    return PartitionImage(
        PartitionId(number),
        BrokerId(leader),
        LeaderEpoch(5),
        tuple(BrokerId(replica) for replica in replicas),
        tuple(BrokerId(replica) for replica in (replicas if isr is None else isr)),
        9,
    )


def with_topic(image: MetadataImage, name: str, *partitions: PartitionImage, **configs: str) -> MetadataImage:
    topic = TopicImage(TopicName(name), TopicId(UUID(int=len(image.topics) + 100)), partitions)
    return apply(image, [CreateTopic(topic, configs)])
