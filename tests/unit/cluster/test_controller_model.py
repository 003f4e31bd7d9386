"""Any order of events: what the controller decides keeps its promises, and every broker hears all that it needs."""

from typing import Any, cast
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.cluster.images import cluster

from ottla.cluster.commands import Command, CreateTopic, DeleteTopic, RegisterBroker, RemoveBroker, apply
from ottla.cluster.controller_requests import Request, Sender, requests_after
from ottla.cluster.elections import Outages, elect_where_needed, return_to_preferred
from ottla.cluster.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.cluster.isr_changes import IsrChange, plan_isr_change
from ottla.cluster.reassignments import finish_reassignments, plan_reassignment
from ottla.errors import OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

BROKERS = st.integers(1, 4).map(BrokerId)
TOPICS = st.sampled_from([TopicName("a"), TopicName("b")])


class ABroker:
    """What one broker makes of the requests it is sent."""

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.roles: dict[tuple[str, int], tuple[int, int, tuple[int, ...]]] = {}
        self.seen: dict[tuple[str, int], tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {}
        self.alive: set[int] = set()

    def take(self, request: Request) -> None:
        if isinstance(request, LeaderAndIsrRequest):
            if request.type == 2:
                self.roles.clear()
            for topic in request.topic_states:
                for state in topic.partition_states:
                    assert self.broker_id in state.replicas
                    key = (topic.topic_name, state.partition_index)
                    assert self.roles.get(key, (0, -1, ()))[1] < state.leader_epoch
                    self.roles[key] = (state.leader, state.leader_epoch, tuple(state.replicas))
        elif isinstance(request, UpdateMetadataRequest):
            if request.type == 2:
                self.seen.clear()
            self.alive = {broker.id for broker in request.live_brokers}
            for known in request.topic_states:
                for part in known.partition_states:
                    key = (known.topic_name, part.partition_index)
                    if part.leader == -2:
                        del self.seen[key]
                    else:
                        self.seen[key] = (part.leader, part.leader_epoch, tuple(part.isr), tuple(part.replicas))
        else:
            for stopped in request.topic_states:
                for gone in stopped.partition_states:
                    assert gone.delete_partition
                    del self.roles[stopped.topic_name, gone.partition_index]


class AController(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.image: MetadataImage = cluster(1, 2, 3)
        self.outages = Outages()
        self.epoch = 10
        self.topic_ids = 0
        self.brokers = {broker: ABroker(broker) for broker in self.image.brokers}
        self._tell(MetadataImage("", NO_LEADER, {}, {}, {}, {}))

    def _do(self, commands: list[Command], *, clean: bool = True) -> None:
        """Commit what is planned, then what follows from it, and send the brokers what they have to know."""
        before = self.image
        asked = apply(before, commands)
        repaired = apply(asked, elect_where_needed(asked, self.outages, lambda topic: not clean).changes)
        self.image = apply(repaired, finish_reassignments(repaired, self.outages, repaired.topics.values()))
        self._check(before, asked, clean)
        self._check(asked, repaired, clean)
        self._check(repaired, self.image, clean)
        self._tell(before)

    def _tell(self, before: MetadataImage) -> None:
        for broker_id, requests in requests_after(Sender(BrokerId(1), 1, "PLAINTEXT"), before, self.image).items():
            for request in requests:
                self.brokers[broker_id].take(request)

    def _check(self, before: MetadataImage, after: MetadataImage, clean: bool) -> None:
        for topic in after.topics.values():
            known = before.topics_by_id.get(topic.topic_id)
            for part in topic.partitions if known is not None else ():
                was = cast(TopicImage, known).partitions[part.partition]
                if part == was:
                    continue
                assert part.partition_epoch > was.partition_epoch
                if part.leader != was.leader or part.replicas != was.replicas:
                    assert part.leader_epoch > was.leader_epoch
                if clean:
                    assert part.leader == NO_LEADER or part.leader in was.isr or part.leader == was.leader

    @rule(
        topic=TOPICS, placed=st.lists(st.permutations([1, 2, 3]).map(lambda order: order[:2]), min_size=1, max_size=3)
    )
    def create(self, topic: TopicName, placed: list[list[int]]) -> None:
        alive = self.image.brokers
        if topic in self.image.topics or not all(BrokerId(b) in alive for replicas in placed for b in replicas):
            return
        self.topic_ids += 1
        parts = tuple(
            PartitionImage(
                PartitionId(number),
                BrokerId(replicas[0]),
                LeaderEpoch(0),
                tuple(map(BrokerId, replicas)),
                tuple(map(BrokerId, replicas)),
                0,
            )
            for number, replicas in enumerate(placed)
        )
        topic_id = TopicId(UUID(int=self.topic_ids))
        self._do([CreateTopic(TopicImage(topic, topic_id, parts), {})])

    @rule(topic=TOPICS)
    def delete(self, topic: TopicName) -> None:
        if topic in self.image.topics:
            self._do([DeleteTopic(topic)])

    @precondition(lambda self: len(self.image.brokers) > 1)
    @rule(broker=BROKERS, clean=st.booleans())
    def goes(self, broker: BrokerId, clean: bool) -> None:
        if broker in self.image.brokers and len(self.image.brokers) > 1:
            del self.brokers[broker]
            self.outages = self.outages._replace(stopping=self.outages.stopping - {broker})
            self._do([RemoveBroker(broker)], clean=clean)

    @rule(broker=BROKERS)
    def comes(self, broker: BrokerId) -> None:
        self.epoch += 1
        self.outages = self.outages._replace(stopping=self.outages.stopping - {broker})
        commands: list[Command] = [RemoveBroker(broker)] if broker in self.image.brokers else []
        if commands:  # it was so quick that nobody noticed it was gone: as if it had been
            self.brokers.pop(broker)
            self._do(commands)
        self.brokers[broker] = ABroker(broker)
        self._do([RegisterBroker(BrokerImage(broker, self.epoch, None, {"PLAINTEXT": ("h", int(broker))}))])

    @rule(broker=BROKERS)
    def stops(self, broker: BrokerId) -> None:
        if broker in self.image.brokers:
            self.outages = self.outages._replace(stopping=self.outages.stopping | {broker})
            self._do([])

    @rule(data=st.data(), topic=TOPICS)
    def changes_in_sync_set(self, data: Any, topic: TopicName) -> None:
        if topic not in self.image.topics:
            return
        known = self.image.topics[topic]
        part = data.draw(st.sampled_from(known.partitions))
        wanted = data.draw(st.lists(st.sampled_from(part.replicas), unique=True, min_size=1))
        change = IsrChange(
            part.leader, known.topic_id, part.partition, part.leader_epoch, part.partition_epoch,
            tuple(wanted), [-1] * len(wanted),
        )  # fmt: skip
        try:
            command = plan_isr_change(self.image, self.outages, change)
        except OttlaError:
            return
        self._do([command] if command.partitions else [])

    @rule(data=st.data(), topic=TOPICS)
    def moves(self, data: Any, topic: TopicName) -> None:
        if topic not in self.image.topics:
            return
        number = data.draw(st.integers(0, len(self.image.topics[topic].partitions) - 1))
        alive = sorted(self.image.brokers)
        wanted = data.draw(st.none() | st.lists(st.sampled_from(alive), unique=True, min_size=1, max_size=3))
        try:
            self._do([plan_reassignment(self.image, TopicPartition(topic, PartitionId(number)), wanted)])
        except OttlaError:
            return

    @rule()
    def returns_leadership(self) -> None:
        self._do(list(return_to_preferred(self.image, self.outages, 0)))

    @invariant()
    def leaders_are_alive_and_in_sync(self) -> None:
        for topic in self.image.topics.values():
            for part in topic.partitions:
                assert part.isr
                assert set(part.isr) <= set(part.replicas)
                assert set(part.adding) | set(part.removing) <= set(part.replicas)
                if part.leader != NO_LEADER:
                    assert part.leader in self.image.brokers
                    assert part.leader in part.isr
                    assert all(replica in self.image.brokers for replica in part.isr)
                else:
                    assert not any(replica in self.image.brokers for replica in part.isr)

    @invariant()
    def brokers_know_all(self) -> None:
        parts = {
            (topic.name, part.partition): part for topic in self.image.topics.values() for part in topic.partitions
        }
        for broker in self.brokers.values():
            assert broker.alive == set(self.image.brokers)
            assert broker.seen == {
                key: (part.leader, part.leader_epoch, part.isr, part.replicas) for key, part in parts.items()
            }
            assert broker.roles == {
                key: (part.leader, part.leader_epoch, part.replicas)
                for key, part in parts.items()
                if broker.broker_id in part.replicas
            }


AController.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestController = AController.TestCase
