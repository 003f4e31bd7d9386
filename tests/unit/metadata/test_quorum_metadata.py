"""A broker's metadata from the log of a quorum: images, access rules, tokens, snapshots, and what cannot be read."""

import asyncio
from uuid import UUID

from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.snapshots import snapshot_records
from ottla.config.broker import BrokerConfig
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, OffsetAndEpoch
from ottla.metadata.quorum_acls import FollowedAcls
from ottla.metadata.quorum_metadata import QuorumMetadata, access_rules
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.protocol import metadata_records as records
from ottla.protocol.schema import Message
from ottla.security.acls import StandardAuthorizer
from ottla.slices import run_at_once

LEVEL = 30


def registration(epoch: int, *, fenced: bool) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=UUID(int=5),
        broker_epoch=epoch,
        end_points=[],
        features=[],
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        log_dirs=[UUID(int=100)],
    )


BROKER = registration(1, fenced=True)
UNFENCED = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1)
RULE = records.AccessControlEntryRecord(
    id=UUID(int=9),
    resource_type=2,
    resource_name="t",
    pattern_type=3,
    principal="User:a",
    host="*",
    operation=3,
    permission_type=3,
)


NUMBER = records.ConfigRecord(resource_type=4, resource_name="1", name="num.partitions", value="7")


class Story:
    """Metadata, and what its parts have seen."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.replay = QuorumReplay("cluster", failed=self.stopped.append)
        self.metadata = QuorumMetadata(BrokerConfig({}), self.replay)
        self.seen: list[MetadataImage] = []
        self.metadata.subscribe(lambda old, new: self.seen.append(new))
        self._offset = 0

    def commit(self, *written: Message) -> None:
        values = [framed(record, LEVEL) for record in written]
        last = self._offset + len(values) - 1
        self.replay.handle_commit(CommittedBatch(self._offset, last, 1, 0, values))
        self._offset = last + 1


def level() -> records.FeatureLevelRecord:
    return records.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)


def test_brokers_are_in_the_image_once_they_are_unfenced() -> None:
    told = Story()
    told.commit(level(), BROKER)
    metadata = told.metadata
    assert metadata.image.brokers == {}
    assert metadata.image.controller_id == NO_LEADER
    assert [broker.broker_id for broker in metadata.fenced_brokers] == [1]
    assert metadata.registration is not None
    told.commit(UNFENCED)
    assert list(metadata.image.brokers) == [1]
    assert metadata.image.controller_id == 1
    assert metadata.feature("metadata.version") == LEVEL
    assert metadata.features_epoch == metadata.offset == 2


def test_what_changes_nothing_is_no_new_image() -> None:
    told = Story()
    told.commit(level())
    count = len(told.seen)
    told.commit(records.NoOpRecord())
    assert (len(told.seen), told.metadata.offset) == (count, 1)


def test_waiting_for_an_offset_ends_with_it() -> None:
    async def wait() -> None:
        told = Story()
        waiting = asyncio.create_task(told.metadata.until_offset(1))
        told.commit(level())
        await asyncio.sleep(0)
        assert not waiting.done()
        told.commit(records.NoOpRecord())
        await asyncio.wait_for(waiting, 5)

    asyncio.run(wait())


def test_access_rules_follow_the_log_and_snapshots() -> None:
    told = Story()
    told.commit(level())
    empty = list(snapshot_records(told.metadata.state))
    told.commit(RULE)
    authorizer = StandardAuthorizer(frozenset(), allow_if_none=False)
    access_rules(told.metadata, authorizer)
    assert len(list(authorizer.bindings())) == 1
    told.commit(records.RemoveAccessControlEntryRecord(id=RULE.id))
    assert list(authorizer.bindings()) == []
    told.commit(RULE)
    assert len(list(authorizer.bindings())) == 1
    run_at_once(told.replay.handle_snapshot(OffsetAndEpoch(50, 1), empty))
    assert list(authorizer.bindings()) == []
    assert told.metadata.offset == 49


def test_a_record_that_cannot_be_understood_stops_the_broker_and_leaves_the_image() -> None:
    told = Story()
    told.commit(level(), BROKER, UNFENCED)
    image = told.metadata.image
    told.replay.handle_commit(CommittedBatch(3, 3, 1, 0, [b"\x01\x7f\x00"]))
    told.commit(level())
    assert len(told.stopped) == 1
    assert "metadata log cannot be followed" in told.stopped[0]
    assert told.metadata.image is image
    assert told.metadata.offset == 2


def test_a_broker_that_is_about_to_stop_gets_into_sync_no_longer() -> None:
    """It fetches no partition any more that it is out of sync with: a leader that waited would wait in vain."""
    story = Story()
    story.commit(level(), BROKER, UNFENCED)
    assert set(story.metadata.in_sync_candidates) == {1}
    story.commit(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1))
    assert set(story.metadata.in_sync_candidates) == set()
    assert set(story.metadata.image.brokers) == {1}
    story.commit(registration(2, fenced=False))
    assert set(story.metadata.in_sync_candidates) == {1}


def test_another_leader_of_the_quorum_is_no_new_image() -> None:
    story = Story()
    story.commit(level(), BROKER, UNFENCED)
    count = len(story.seen)
    story.replay.handle_leader_change(LeaderAndEpoch(3, 7))
    assert story.replay.image.controller_id == 3
    assert (len(story.seen), story.metadata.image.controller_id) == (count, 1)


def test_a_broker_begins_where_the_controller_of_its_process_is() -> None:
    story = Story()
    story.commit(level(), BROKER, UNFENCED, NUMBER)
    story.replay.handle_leader_change(LeaderAndEpoch(1, 7))
    late = QuorumMetadata(BrokerConfig({"node.id": "1"}), story.replay)
    assert late.offset == 3
    assert late.image.brokers is story.metadata.image.brokers
    assert late.config.num_partitions == 7


def test_rules_and_tokens_reach_the_controller_and_the_broker_of_a_process() -> None:
    token = records.DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        renewers=[],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="id",
    )
    story = Story()
    ids: list[set[str]] = [set(), set()]
    rules = [StandardAuthorizer(frozenset(), allow_if_none=False) for _ in range(2)]
    of_controller = FollowedAcls(rules[0])
    story.replay.on_advance(of_controller.follow)
    story.replay.on_advance(lambda advance: ids[0].update(advance.tokens))
    story.commit(level())
    empty = list(snapshot_records(story.metadata.state))
    access_rules(story.metadata, rules[1])
    story.metadata.follow_tokens(ids[1].update)
    story.commit(RULE, token)
    assert [len(list(each.bindings())) for each in rules] == [1, 1]
    assert ids == [{"id"}, {"id"}]
    for seen in ids:
        seen.clear()
    run_at_once(story.replay.handle_snapshot(OffsetAndEpoch(50, 1), empty))
    assert [len(list(each.bindings())) for each in rules] == [0, 0]
    assert ids == [{"id"}, {"id"}]  # it is gone
