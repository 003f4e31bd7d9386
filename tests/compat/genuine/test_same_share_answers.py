"""Share groups' records, and bad requests for them, told as stories to genuine Kafka and to Ottla.

Both give the same error codes, and the same records as often. What is not compared: partitions that an answer mentions
without saying anything of them, and the offsets of control batches, which Kafka gives to members to be told of a gap.
Nor what a member held that left without a word: Ottla gives it to the next at once, Kafka 4.1.1 not within seconds.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.share_groups import prepare_coordinator, set_group, topic_id
from tests.support.share_member import ACCEPT, GAP, REJECT, RELEASE, Acknowledgements, ShareMember, given
from tests.support.stories import batch, produce

LOCK_MS: Final = 1_000
SETTINGS: Final = {
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": "2",
    "group.share.partition.max.record.locks": "100",
    "share.coordinator.state.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Pair(NamedTuple):
    genuine: str
    ottla: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with GenuineKafka(properties=SETTINGS) as genuine, OttlaProcess(properties=SETTINGS) as ottla:
        yield Pair(genuine.bootstrap, ottla.bootstrap)


class Teller:
    """Keeps what one broker said to the members of one group of one topic."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.lines: list[str] = []
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
        eventually(lambda: self.admin.list_topics(name, timeout=5).topics[name].partitions)
        self.topic_id = eventually(lambda: topic_id(bootstrap, name))
        eventually(lambda: _prepared(bootstrap, name, self.topic_id))
        self.members: list[ShareMember] = []
        eventually(self._initialized)

    def _initialized(self) -> bool:
        try:
            self.member().initialize(partitions=2)
        except AssertionError:
            return False
        return True

    def member(self, group: str | None = None) -> ShareMember:
        member = ShareMember(self.bootstrap, group or self.name, self.topic_id)
        self.members.append(member)
        return member

    def produce(self, *values: str, partition: int = 0) -> None:
        """One batch: librdkafka would cut it in two where it learns of the topic meanwhile."""
        request = produce([(self.name, partition, batch(*(value.encode() for value in values)))])
        (topic,) = ask(self.bootstrap, request, 9).responses
        assert topic.partition_responses[0].error_code == 0

    def fetch(
        self, what: str, member: ShareMember, said: Mapping[int, Acknowledgements] | None = None, **terms: Any
    ) -> Any:
        """Note codes and what was acquired."""
        response = member.fetch(said, **{"max_wait_ms": 1_500, **terms})
        self.lines.append(f"{what}: {response.error_code}")
        for data in (data for topic in response.responses for data in topic.partitions):
            acquired = [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]
            if data.error_code or data.acknowledge_error_code or acquired:
                codes = f"{data.error_code} {data.acknowledge_error_code}"
                self.lines.append(f"{what} {data.partition_index}: {codes} {_united(acquired)}")
        return response

    def nothing(self, what: str, member: ShareMember, said: Mapping[int, Acknowledgements] | None = None) -> None:
        """Fetch without waiting."""
        self.fetch(what, member, said, max_wait_ms=200)

    def say(self, what: str, member: ShareMember, *said: tuple[int, int, int | list[int]], partition: int = 0) -> None:
        response = member.acknowledge({partition: said})
        codes = [data.error_code for topic in response.responses for data in topic.partitions]
        self.lines.append(f"{what}: {response.error_code} {codes}")

    def close(self) -> None:
        for member in self.members:
            member.disconnect()


def _prepared(bootstrap: str, group: str, topic: UUID) -> bool:
    prepare_coordinator(bootstrap, group, topic)
    return True


def _united(acquired: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Kafka says released records one by one: as ranges."""
    found: list[tuple[int, int, int]] = []
    for first, last, count in acquired:
        if found and found[-1][1] + 1 == first and found[-1][2] == count:
            found[-1] = (found[-1][0], last, count)
        else:
            found.append((first, last, count))
    return found


def compare(pair: Pair, name: str, story: Callable[[Teller], None]) -> None:
    tellers = [Teller(bootstrap, name) for bootstrap in pair]
    for teller in tellers:
        story(teller)
        teller.close()
    assert tellers[1].lines == tellers[0].lines


def test_who_asks(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        for group, member_id in ((None, "x"), ("g", None), ("g", "no uuid"), ("g", ""), ("g", "m" * 37)):
            member = teller.member()
            good = member.member_id
            member.group_id, member.member_id = group, good if member_id == "x" else member_id
            refused = [member.fetch().error_code, member.acknowledge({0: [(0, 0, ACCEPT)]}).error_code]
            teller.lines.append(f"{group} {member_id}: {[code != 0 for code in refused]}")
        nobody = teller.member()
        nobody.group_id = ""
        teller.fetch("a group without a name", nobody)
        teller.say("a group without a name", nobody, (0, 0, ACCEPT))

    compare(pair, "who-asks", story)


def test_epochs_of_sessions(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.produce("a", "b", "c")
        member = teller.member()
        teller.fetch("no session", member, epoch=1)
        teller.fetch("no session to close", member, epoch=-1)
        teller.lines.append(str(member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=1).error_code))
        teller.lines.append(str(member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=0).error_code))
        teller.lines.append(str(member.acknowledge({}, epoch=-1).error_code))
        teller.fetch("begins with acknowledgements", member, {0: [(0, 0, ACCEPT)]}, epoch=0)
        teller.fetch("begins", member)
        teller.fetch("an epoch too high", member, epoch=2)
        teller.fetch("an old epoch", member, epoch=7)
        teller.lines.append(str(member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=0).error_code))
        teller.lines.append(str(member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=5).error_code))
        teller.say("goes on", member, (0, 0, ACCEPT))
        teller.nothing("goes on", member)
        member.epoch = 0
        teller.nothing("begins again, and holds what it held", member)
        teller.say("what it held", member, (1, 1, ACCEPT))
        teller.fetch("closes, with acknowledgements", member, {0: [(2, 2, RELEASE)]}, epoch=-1)
        teller.fetch("is closed", member, epoch=-1)
        teller.fetch("another has what was released", teller.member())

    compare(pair, "epochs", story)


def test_bad_acknowledgements(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.produce("a", "b", "c", "d")
        one, two = teller.member(), teller.member()
        teller.fetch("given", one)
        teller.nothing("nothing for another", two)
        teller.say("not its own", two, (0, 0, ACCEPT))
        bad: tuple[tuple[int, int, int | list[int]], ...] = (
            (2, 1, ACCEPT),
            (0, 3, [ACCEPT, ACCEPT]),
            (0, 3, []),
            (0, 3, 7),
            (0, 3, -1),
            (0, 9, ACCEPT),
            (5, 9, ACCEPT),
            (-5, -1, ACCEPT),
        )
        for said in bad:
            teller.say(f"{said}", one, said)
        teller.say("backwards", one, (2, 2, ACCEPT), (0, 0, ACCEPT))
        teller.say("twice", one, (0, 0, ACCEPT), (0, 0, ACCEPT))
        teller.say("overlapping", one, (0, 2, ACCEPT), (2, 3, ACCEPT))
        teller.say("no such partition", one, (0, 0, ACCEPT), partition=9)
        teller.say("nothing of it is held", one, (0, 0, ACCEPT), partition=1)
        teller.say("each in its way", one, (0, 3, [ACCEPT, REJECT, GAP, RELEASE]))
        teller.say("again", one, (0, 2, ACCEPT))
        teller.say("released already", one, (3, 3, ACCEPT))
        teller.fetch("comes again", two)
        one.topic_id = UUID(int=99)
        teller.say("no such topic", one, (0, 0, ACCEPT))

    compare(pair, "bad-acknowledgements", story)


def test_piggybacked_acknowledgements(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.produce("a", "b")
        teller.produce("c", "d")
        member = teller.member()
        teller.fetch("first", member, max_records=1)
        teller.fetch("next", member, {0: [(0, 1, [ACCEPT, RELEASE])]}, max_records=1)
        teller.fetch("wrong, and records all the same", member, {0: [(0, 9, ACCEPT)]})
        teller.nothing("malformed", member, {0: [(3, 2, ACCEPT)]})
        teller.nothing("the rest", member, {0: [(1, 3, ACCEPT)]})

    compare(pair, "piggybacked", story)


def test_topics_and_partitions_that_are_not_there(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        member = teller.member()
        teller.fetch("no such partition", member, partitions=(9,), max_wait_ms=200)
        teller.fetch("never initialized", teller.member("another group"), max_wait_ms=200)

    compare(pair, "not-there", story)


def test_deliveries_are_counted(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.produce(*"abcdef")
        one, two = teller.member(), teller.member()
        teller.fetch("first", one)
        teller.say("released", one, (0, 2, RELEASE), (4, 4, REJECT))
        teller.fetch("again", two)
        teller.say("released for the last time", two, (0, 1, RELEASE), (2, 2, ACCEPT))
        teller.nothing("nothing is left", two)
        teller.say("accepted", one, (3, 3, ACCEPT), (5, 5, ACCEPT))
        teller.produce("g")
        teller.fetch("goes on", two)

    compare(pair, "counted", story)


def test_locks_expire(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.produce("a", "b")
        one, two = teller.member(), teller.member()
        teller.fetch("given", one)
        teller.say("half of it", one, (0, 0, ACCEPT))
        teller.fetch("expired", two, max_wait_ms=5_000)
        teller.say("too late", one, (1, 1, ACCEPT))
        teller.nothing("still held", one)
        teller.fetch("delivered as often as may be", one, max_wait_ms=2 * LOCK_MS)

    compare(pair, "expire", story)


def test_limits_of_a_request_and_of_what_is_under_way(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        for first in range(0, 100, 10):
            teller.produce(*map(str, range(first, first + 10)))
        one, two = teller.member(), teller.member()
        teller.fetch("whole batches", one, max_records=15)
        teller.fetch("cut in pieces", two, max_records=30, batch_size=10)
        teller.fetch("as many as may be under way", one)
        teller.nothing("the end", two)
        teller.say("the first are done", one, (0, 19, ACCEPT))
        teller.produce(*"abcde")
        teller.fetch("and others go on", one)

    compare(pair, "limits", story)


def test_records_that_the_log_has_lost(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.produce("a", "b", "c")
        teller.produce("d", "e")
        member = teller.member()
        teller.fetch("given", member, max_records=1)
        partition = TopicPartition(teller.name, 0, 3)
        teller.admin.delete_records([partition])[partition].result(20)
        eventually(lambda: any("e" in values(teller.fetch("", member)) for _ in range(1)))
        teller.lines = [line for line in teller.lines if not line.startswith(":")]
        teller.say("gone, and the last", member, (3, 4, ACCEPT))

    compare(pair, "lost", story)


def values(response: Any) -> list[str]:
    return [(record.value or b"").decode() for record in given(response).get(0, [])]


def test_transactions(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        set_group(teller.bootstrap, teller.name, share_isolation_level="read_committed")
        producer = Producer({"bootstrap.servers": teller.bootstrap, "transactional.id": teller.name})
        producer.init_transactions(20)
        for number, commit in enumerate((False, True, False, True)):
            producer.begin_transaction()
            producer.produce(teller.name, str(number), partition=0)
            assert producer.flush(20) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(20)
        producer.begin_transaction()
        producer.produce(teller.name, "open", partition=0)
        assert producer.flush(20) == 0
        member = teller.member()
        seen: list[str] = []

        def has_seen(count: int) -> bool:
            seen.extend(values(member.fetch(max_wait_ms=200)))
            return len(seen) >= count

        eventually(lambda: has_seen(2))
        producer.commit_transaction(20)
        eventually(lambda: has_seen(3))
        teller.lines.append(str(seen))

    compare(pair, "transactions", story)
