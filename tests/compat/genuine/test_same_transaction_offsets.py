"""Offsets that are committed in transactions: genuine Kafka and Ottla refuse the same, and keep the same."""

import pytest
from tests.support import group_stories
from tests.support.transaction_stories import UNKNOWN_PRODUCER, Pair, Producer, Teller, compare

from ottla.protocol.messages import consumer_group_heartbeat as ch


@pytest.mark.parametrize("version", range(6))
def test_offsets_in_transactions(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name, group = f"commits-{version}", f"commits-group-{version}"
        place = ("other-topic", 0, 5)
        nobody = Producer("commits-nobody", UNKNOWN_PRODUCER, 0)
        teller.commit_offsets("of nobody", nobody, group, [place], version)
        teller.new(name)
        writer = teller.new(name)
        if version < 5:
            teller.commit_offsets("the group is not added", writer, group, [place], version)
            teller.add_group("added", writer, group)
        teller.commit_offsets("of the one before", writer.older(), group, [place], version)
        teller.commit_offsets("of one to come", writer.older(-1), group, [place], version)
        teller.commit_offsets("of a stranger", writer.stranger(), group, [place], version)
        teller.commit_offsets("an empty group", writer, "", [place], version)
        teller.commit_offsets("nothing", writer, group, [], version)
        teller.commit_offsets("long metadata", writer, group, [place], version, metadata="12345678901")
        teller.commit_offsets("an unknown topic", writer, group, [("no-such-topic", 0, 5)], version)
        teller.commit_offsets("an unknown partition", writer, group, [("other-topic", 9, 5)], version)
        mixed = [("other-topic", 1, 7), ("no-such-topic", 0, 5)]
        teller.commit_offsets("one known, one not", writer, group, mixed, version)
        if version >= 3:
            teller.commit_offsets("an unknown member", writer, group, [place], version, generation_id=1, member_id="m")
            teller.commit_offsets("a generation alone", writer, group, [place], version, generation_id=1)
            teller.commit_offsets("a member alone", writer, group, [place], version, member_id="m")
            teller.commit_offsets("an instance", writer, group, [place], version, group_instance_id="i")
        teller.offsets(group, "other-topic")
        for number in range(4):
            # Some are kept by the partition that the transaction has, as this group is; some by the other.
            foreign = f"foreign-{version}-{number}"
            teller.commit_offsets("for a group nobody added", writer, foreign, [place], version)
            teller.offsets(foreign, "other-topic")
        teller.commit_offsets("good", writer, group, [place], version)
        teller.offsets(group, "other-topic")
        teller.transaction(name)
        if version % 2:
            teller.end("commit", writer, commit=True)
        else:
            teller.end("abort", writer, commit=False)
        teller.transaction(name, until=lambda state: state.startswith("Complete"))
        teller.offsets(group, "other-topic", stable=True)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [2, 3, 5])
@pytest.mark.parametrize("instance", [None, "i"])
def test_offsets_of_members_of_groups(transactional_pair: Pair, version: int, instance: str | None) -> None:
    """What a member may commit in a transaction: only as who it is, in the generation that is (KIP-447)."""

    def story(teller: Teller) -> None:
        group = f"members-{version}-{instance}"
        place = ("other-topic", 0, 5)
        members = group_stories.Teller(teller.bootstrap)
        try:
            joined = members.join("m", group, instance=instance, version=5)
            members.sync("m", group, joined.member_id, joined.generation_id, {joined.member_id: b""})
            members.hear("m")
            writer = teller.new(f"of-{group}")
            teller.add_group("adds", writer, group)
            me = {"member_id": joined.member_id, "generation_id": joined.generation_id}
            if version < 3:
                teller.commit_offsets("as nobody", writer, group, [place], version)
            else:
                attempts = {
                    "itself": me,
                    "itself of the past": {**me, "generation_id": joined.generation_id - 1},
                    "itself to come": {**me, "generation_id": joined.generation_id + 1},
                    "itself at no time": {**me, "generation_id": -1},
                    "a stranger": {**me, "member_id": "stranger"},
                    "a generation": {"generation_id": joined.generation_id},
                    "its instance": {**me, "group_instance_id": "i"},
                    "another instance": {**me, "group_instance_id": "another"},
                    "a stranger of its instance": {**me, "member_id": "stranger", "group_instance_id": "i"},
                    "nobody": {},
                }
                for number, (who, member) in enumerate(attempts.items()):
                    offset = ("other-topic", 0, 10 + number)
                    teller.commit_offsets(f"as {who}", writer, group, [offset], version, **member)
            teller.transaction(f"of-{group}")
            teller.end("commit", writer, commit=True)
            teller.transaction(f"of-{group}", until=lambda state: state == "CompleteCommit")
            teller.offsets(group, "other-topic", stable=True)
        finally:
            members.close()

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [2, 3, 5])
def test_offsets_of_members_of_consumer_groups(transactional_pair: Pair, version: int) -> None:
    """The same of a group of the new protocol, whose members have epochs in the place of generations (KIP-848)."""

    def story(teller: Teller) -> None:
        group, name, member_id = f"epochs-{version}", f"of-epochs-{version}", "AAAAAAAAAAAAAAAAAAAAAA"
        heartbeat = ch.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["other-topic"],
            topic_partitions=[],
        )
        hidden = ["heartbeat_interval_ms", "topic_id"]
        joined = teller.ask("joins", heartbeat, 1, hide=hidden)
        writer = teller.new(name)
        teller.add_group("adds", writer, group)
        me = {"member_id": member_id, "generation_id": joined.member_epoch}
        attempts = {
            "itself": me,
            "itself of the past": {**me, "generation_id": joined.member_epoch - 1},
            "itself to come": {**me, "generation_id": joined.member_epoch + 1},
            "itself at no time": {**me, "generation_id": -1},
            "a stranger": {**me, "member_id": "stranger"},
            "an epoch": {"generation_id": joined.member_epoch},
            "an instance": {**me, "group_instance_id": "i"},
            "nobody": {},
        }
        for number, (who, member) in enumerate(attempts.items()):
            given = member if version >= 3 else {}
            teller.commit_offsets(f"as {who}", writer, group, [("other-topic", 0, 10 + number)], version, **given)
        teller.end("commit", writer, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        teller.offsets(group, "other-topic", stable=True)
        heartbeat.member_epoch = -1
        teller.ask("leaves", heartbeat, 1, hide=hidden)
        late = teller.new(name)
        teller.add_group("adds", late, group)
        if version >= 3:
            teller.commit_offsets("as who has left", late, group, [("other-topic", 0, 99)], version, **me)
        teller.end("abort", late, commit=False)
        teller.offsets(group, "other-topic", stable=True)

    compare(transactional_pair, story)
