"""Stories of consumer groups (KIP-848): members that say what they have and take what they are given."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol.messages import add_offsets_to_txn as ao
from ottla.protocol.messages import consumer_group_describe as cd
from ottla.protocol.messages import consumer_group_heartbeat as ch
from ottla.protocol.messages import consumer_protocol as cp
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import end_txn as et
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import init_producer_id as ip
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import txn_offset_commit as tc
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.versioned import decode_versioned, encode_versioned
from tests.support.eventually import eventually
from tests.support.group_stories import Teller
from tests.support.raw_client import ask


class TransactionalProducer(NamedTuple):
    """One that has been given an id and an epoch, and what it asks for."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def adds(self, group: str) -> ao.AddOffsetsToTxnRequest:
        return ao.AddOffsetsToTxnRequest(**self._asdict(), group_id=group)

    def commits(
        self,
        group: str,
        offset: tuple[str, int, int],
        member_id: str = "",
        member_epoch: int = -1,
        instance: str | None = None,
    ) -> tc.TxnOffsetCommitRequest:
        """`offset`: topic, partition, offset."""
        topic, partition, committed = offset
        wanted = tc.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=committed, committed_metadata=""
        )
        return tc.TxnOffsetCommitRequest(
            **self._asdict(),
            group_id=group,
            generation_id=member_epoch,
            member_id=member_id,
            group_instance_id=instance,
            topics=[tc.TxnOffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )

    def ends(self, *, committed: bool = True) -> et.EndTxnRequest:
        return et.EndTxnRequest(**self._asdict(), committed=committed)


class Members(Teller):
    """A teller that knows topics by name, and members that follow their answers."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        topics = [md.MetadataRequestTopic(name=name, topic_id=NULL_UUID) for name in ("t", "u")]
        answer = ask(bootstrap, md.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        self.ids: dict[str, UUID] = {topic.name: topic.topic_id for topic in answer.topics}

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """A new one, off the record."""
        request = ip.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=30_000)

        def is_given() -> bool:
            ask(self.bootstrap, fc.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
            return not ask(self.bootstrap, request, 5).error_code

        eventually(is_given)
        given = ask(self.bootstrap, request, 5)
        assert given.error_code == 0, given
        return TransactionalProducer(transactional_id, given.producer_id, given.producer_epoch)

    def lines(self, value: Any, path: str) -> list[str]:
        if path.endswith(("heartbeat_interval_ms", "producer_id")):
            return []
        if isinstance(value, UUID):
            named = {topic_id: f"id of {name}" for name, topic_id in self.ids.items()}
            return [f"{path}: {named.get(value, value)}"]
        return super().lines(value, path)

    def beat(self, who: str, group: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        """A heartbeat of the member called `who`, whose id is its name."""
        return self.tell(who, self.heartbeat(who, group, epoch, **fields), version)

    def heartbeat(
        self,
        who: str,
        group: str,
        epoch: int,
        *,
        owned: Mapping[str | UUID, list[int]] | None = None,
        member_id: str | None = None,
        **fields: Any,
    ) -> ch.ConsumerGroupHeartbeatRequest:
        """`owned`: partitions by topic; a topic is a name, or an id."""
        held = None
        if owned is not None:
            held = [
                ch.TopicPartitions(topic_id=topic if isinstance(topic, UUID) else self.ids[topic], partitions=numbers)
                for topic, numbers in owned.items()
            ]
        return ch.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=who if member_id is None else member_id,
            member_epoch=epoch,
            topic_partitions=held,
            **fields,
        )

    def enter(self, who: str, group: str, topics: list[str] | None = None, **fields: Any) -> Any:
        """A member joins, reading `t` unless told otherwise."""
        if topics is None and "subscribed_topic_regex" not in fields:
            topics = ["t"]
        fields.setdefault("rebalance_timeout_ms", 10_000)
        return self.beat(who, group, 0, owned={}, subscribed_topic_names=topics, **fields)

    def follow(self, who: str, group: str, beat: Any, *, until: Callable[[Any], bool] | None = None) -> Any:
        """Take on what a heartbeat's answer assigns, and tell so, until nothing more is assigned; the last answer."""
        for _ in range(10):
            if beat.error_code or (beat.assignment is None and (until is None or until(beat))):
                return beat
            owned: Mapping[str | UUID, list[int]] | None = None
            if beat.assignment is not None:
                owned = {given.topic_id: given.partitions for given in beat.assignment.topic_partitions}
            beat = self.beat(who, group, beat.member_epoch, owned=owned)
        raise AssertionError(f"{who} was never left in peace: {beat}")

    def settle(self, group: str, *who: str) -> None:
        """Have members take on whatever they are given, until the group says that it is stable; off the record."""
        epochs: dict[str, int] = {}
        owned: dict[str, Mapping[str | UUID, list[int]]] = {}
        members = {member.member_id: member.member_epoch for member in self.described(group).members}
        for name in who:
            epochs[name] = members[name]

        def stable() -> bool:
            for name in who:
                answer = ask(
                    self.bootstrap, self.heartbeat(name, group, epochs[name], owned=owned.get(name)), 1, client_id=name
                )
                assert answer.error_code == 0, answer
                epochs[name] = answer.member_epoch
                if answer.assignment is not None:
                    owned[name] = {given.topic_id: given.partitions for given in answer.assignment.topic_partitions}
            return self.described(group).group_state == "Stable"

        eventually(stable)

    def described(self, group: str) -> cd.DescribedGroup:
        """How the group stands, off the record."""
        request = cd.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (described,) = ask(self.bootstrap, request, 1).groups
        return described

    def held(self, group: str, member_id: str) -> list[int]:
        """The partitions of `t` that a member is assigned, off the record."""
        (member,) = [member for member in self.described(group).members if member.member_id == member_id]
        return [index for topic in member.assignment.topic_partitions for index in topic.partitions]

    def describe(self, *groups: str, version: int = 1) -> None:
        self.tell(
            "d", cd.ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True), version
        )

    def sizes(self, group: str) -> None:
        """How many partitions each has and shall have, where which ones is left to chance."""
        for member in sorted(self.described(group).members, key=lambda member: member.member_id):
            now = sum(len(topic.partitions) for topic in member.assignment.topic_partitions)
            then = sum(len(topic.partitions) for topic in member.target_assignment.topic_partitions)
            self.answers.append(f"{group} {member.member_id} epoch {member.member_epoch}: {now} of {then}")

    def create(self, name: str, partitions: int = 2) -> None:
        """Make a topic, off the record."""
        topic = ct.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        (made,) = ask(self.bootstrap, ct.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
        assert made.error_code == 0, made
        self.ids[name] = made.topic_id

        def known() -> bool:
            """To the coordinator as well, which may hear of it later than others do."""
            probe = self.heartbeat(
                "probe", f"probe of {name}", 0, owned={}, subscribed_topic_names=[name], rebalance_timeout_ms=1000
            )
            assignment = ask(self.bootstrap, probe, 1).assignment
            return assignment is not None and bool(assignment.topic_partitions)

        eventually(known)

    def rejoin(self, who: str, group: str, member_id: str, owned: list[int], generation: int) -> Any:
        """A classic member comes back, says what partitions of `t` it has, and takes what it is given."""
        joined = self.join(who, group, member_id, metadata=subscription(owned, generation))
        return self.fetch_assignment(who, group, joined)

    def fetch_assignment(self, who: str, group: str, joined: Any) -> Any:
        self.sync(who, group, joined.member_id, joined.generation_id, {})
        answer = self.hear(who)
        if answer.error_code == 0 and answer.assignment:
            given = decode_versioned(cp.ConsumerProtocolAssignment, answer.assignment)
            self.answers += self.lines(
                [(topic.topic, topic.partitions) for topic in given.assigned_partitions], f"{who} was given"
            )
        return joined

    def sizes_of_all(self, group: str) -> None:
        """How many members there are of each kind, and how many partitions each shall have."""
        members = self.described(group).members
        self.answers += sorted(
            f"{group}: type {member.member_type}, instance {member.instance_id}, "
            f"{sum(len(topic.partitions) for topic in member.target_assignment.topic_partitions)} partitions"
            for member in members
        )

    def set(self, group: str, **settings: str) -> None:
        resource = ic.AlterConfigsResource(
            resource_type=32,
            resource_name=group,
            configs=[
                ic.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
                for name, value in settings.items()
            ],
        )
        self.tell("s", ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)


def subscription(owned: list[int] | None = None, generation: int = -1, topics: tuple[str, ...] = ("t",)) -> bytes:
    """What a classic consumer says when it joins."""
    held = [cp.TopicPartition(topic="t", partitions=owned)] if owned else []
    return encode_versioned(
        cp.ConsumerProtocolSubscription(topics=list(topics), owned_partitions=held, generation_id=generation), 3
    )


def assignment(partitions: list[int]) -> bytes:
    """What a classic leader gives a member of `t`."""
    given = [cp.TopicPartition(topic="t", partitions=partitions)]
    return encode_versioned(cp.ConsumerProtocolAssignment(assigned_partitions=given), 3)
