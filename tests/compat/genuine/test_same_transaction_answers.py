"""Transactions, and what can be wrong with their requests, told as stories to genuine Kafka and to Ottla.

Both give the same error codes, and keep the same: states, epochs, batches with their producers, last stable offsets.
"""

import pytest
from tests.support import stories
from tests.support.raw_client import ask
from tests.support.transaction_stories import UNKNOWN_PRODUCER, Pair, Producer, Teller, compare

from ottla.protocol.messages import find_coordinator as fc


@pytest.mark.parametrize("version", range(6))
def test_producers_that_begin(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"begin-{version}"
        teller.init("without a name", Producer(None), version)
        teller.init("an empty name", Producer(""), version)
        for timeout_ms in (0, -1, 100_001, 1 << 30):
            teller.init(f"a timeout of {timeout_ms}", Producer(name), version, timeout_ms=timeout_ms)
        teller.transaction(name)
        one = teller.new(name, version=version)
        again = teller.new(name, version=version)
        teller.transaction(name)
        teller.end("the fenced one", one, commit=True)
        teller.add("adds", again, [("other-topic", 0)])
        third = teller.new(name, version=version)
        teller.transaction(name)
        teller.end("the aborted one", again, commit=True)
        teller.end("nothing to commit", third, commit=True)
        teller.end("nothing to abort", third, commit=False)
        if version >= 3:
            unknown = f"begin-unknown-{version}"
            teller.init("of an unknown name", Producer(unknown, UNKNOWN_PRODUCER, 3), version)
            teller.transaction(unknown)
            teller.init("an id without an epoch", Producer(name, third.id, -1), version)
            teller.init("an epoch without an id", Producer(name, -1, 4), version)
            teller.init("an id below", Producer(name, -2, 4), version)
            teller.init("another id", third.stranger(), version)
            teller.init("the epoch before", third.older(), version)
            teller.init("an epoch of the future", third.older(-5), version)
            next_one = teller.init("goes on", third, version)
            teller.init("goes on, once more", third, version)
            teller.init("and on", next_one, version)
            teller.init("of the one before", third, version)
            teller.init("idempotent alone", Producer(None, third.id, 0), version)
        teller.transaction(name)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_partitions_that_are_added(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name, topic = f"adds-{version}", f"added-{version}"
        teller.create(topic, 2)
        teller.add("of nobody", Producer("adds-nobody", UNKNOWN_PRODUCER, 0), [(topic, 0)], version)
        teller.add("without a name", Producer("", UNKNOWN_PRODUCER, 0), [(topic, 0)], version)
        writer = teller.new(name)
        writer = teller.new(name)
        teller.add("of a stranger", writer.stranger(), [(topic, 0)], version)
        teller.add("of the one before", writer.older(), [(topic, 0)], version)
        teller.add("of one to come", writer.older(-1), [(topic, 0)], version)
        teller.add("no such topic", writer, [("no-such-topic", 0)], version)
        teller.add("no such partition", writer, [(topic, 2)], version)
        teller.add("one of them unknown", writer, [(topic, 0), ("no-such-topic", 0), (topic, 7)], version)
        teller.add("nothing", writer, [], version)
        teller.transaction(name)
        teller.add("an internal topic", writer, [("__consumer_offsets", 0)], version)
        teller.add("both", writer, [(topic, 0), (topic, 1)], version)
        teller.add("again", writer, [(topic, 1)], version)
        teller.transaction(name)
        teller.end("abort", writer, commit=False)
        teller.transaction(name, until=lambda state: state == "CompleteAbort")
        teller.add("after the end", writer, [(topic, 1)], version)
        teller.add("of the one before, after the end", writer.older(), [(topic, 1)], version)
        teller.end("commit", writer, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        teller.log(topic)
        teller.log(topic, 1)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_that_are_verified(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name, topic = f"verifies-{version}", f"verified-{version}"
        teller.create(topic, 2)
        teller.verify("of nobody", Producer("verifies-nobody", UNKNOWN_PRODUCER, 0), [(topic, 0)], version)
        teller.new(name)
        writer = teller.new(name)
        teller.verify("before it begins", writer, [(topic, 0)], version)
        teller.add("begins", writer, [(topic, 0)])
        teller.verify("in it", writer, [(topic, 0)], version)
        teller.verify("one not in it", writer, [(topic, 0), (topic, 1)], version)
        teller.verify("an unknown one", writer, [("no-such-topic", 0)], version)
        teller.verify("of a stranger", writer.stranger(), [(topic, 0)], version)
        teller.verify("of the one before", writer.older(), [(topic, 0)], version)
        teller.verify("of one to come", writer.older(-1), [(topic, 0)], version)
        teller.end("commit", writer, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        teller.verify("after the end", writer, [(topic, 0)], version)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", range(5))
def test_groups_that_are_added(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"adds-group-{version}"
        teller.add_group("of nobody", Producer("adds-nobody", UNKNOWN_PRODUCER, 0), "g", version)
        teller.add_group("without a name", Producer("", UNKNOWN_PRODUCER, 0), "g", version)
        writer = teller.new(name)
        writer = teller.new(name)
        teller.add_group("of a stranger", writer.stranger(), "g", version)
        teller.add_group("of the one before", writer.older(), "g", version)
        teller.add_group("of one to come", writer.older(-1), "g", version)
        teller.transaction(name)
        teller.add_group("a group without a name", writer, "", version)
        teller.add_group("a group", writer, "g", version)
        teller.add_group("again", writer, "g", version)
        teller.transaction(name)
        teller.end("abort", writer, commit=False)
        teller.transaction(name, until=lambda state: state == "CompleteAbort")

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", range(6))
def test_how_transactions_end(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name, topic = f"ends-{version}", f"ended-{version}"
        teller.create(topic)
        teller.end("of nobody", Producer("ends-nobody", UNKNOWN_PRODUCER, 0), commit=True, version=version)
        teller.end("without a name", Producer("", UNKNOWN_PRODUCER, 0), commit=True, version=version)
        teller.new(name)
        writer = teller.new(name)
        for commit in (True, False):
            # The second generation may abort what it never began: its epoch grows then.
            how = "commit" if commit else "abort"
            went_on = teller.end(f"{how} of nothing", writer, commit=commit, version=version)
            writer = went_on
            teller.transaction(name)
        for number, commit in enumerate((True, False)):
            how = "commit" if commit else "abort"
            teller.add(f"begin to {how}", writer, [(topic, 0)])
            teller.send("a record", writer, (topic, 0), 0 if version >= 5 else number)
            teller.end(f"{how} of a stranger", writer.stranger(), commit=commit, version=version)
            teller.end(f"{how} of the one before", writer.older(), commit=commit, version=version)
            teller.end(f"{how} of one to come", writer.older(-1), commit=commit, version=version)
            went_on = teller.end(how, writer, commit=commit, version=version)
            done = "CompleteCommit" if commit else "CompleteAbort"
            teller.transaction(name, until=lambda state, done=done: state == done)  # type: ignore[misc]
            teller.end(f"{how} again", writer, commit=commit, version=version)
            teller.end(f"otherwise than {how}", writer, commit=not commit, version=version)
            writer = went_on
            teller.transaction(name)
        teller.log(topic)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [3, 7, 10, 11, 12])
def test_what_can_be_wrong_with_transactional_records(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name, topic = f"sends-{version}", f"sent-{version}"
        teller.create(topic, 2)
        place = (topic, 0)
        teller.send("of nobody", Producer("sends-nobody", UNKNOWN_PRODUCER, 0), place, 0, version=version)
        teller.new(name)
        writer = teller.new(name)
        if version < 12:
            teller.send("not added", writer, place, 0, version=version)
            teller.add("added", writer, [place])
        teller.send("first", writer, place, 0, b"1", b"2", version=version)
        teller.send("first again", writer, place, 0, b"1", b"2", version=version)
        teller.send("a gap", writer, place, 5, version=version)
        teller.send("partly known", writer, place, 1, b"2", b"3", version=version)
        teller.send("no sequence", writer, place, -1, version=version)
        teller.send("second", writer, place, 2, b"3", version=version)
        teller.send("of the one before", writer.older(), place, 3, version=version)
        teller.send("of a stranger", writer.stranger(), place, 0, version=version)
        teller.send("without its name", writer, place, 3, version=version, named=False)
        teller.send("outside of the transaction", writer, place, 3, version=version, transactional=False, named=False)
        teller.send("outside of it, named", writer, place, 3, version=version, transactional=False)
        teller.send("of one to come", writer.older(-1), place, 0, version=version)
        teller.send("an unknown partition", writer, (topic, 9), 0, version=version)
        teller.send("an unknown topic", writer, ("no-such-topic", 0), 0, version=version)
        teller.producers(topic, 0, 1)
        teller.end("commit", writer, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        if version < 12:
            teller.send("after the end", writer, place, 3, version=version)
        teller.transaction(name)
        teller.log(topic)
        teller.log(topic, 1)
        teller.producers(topic, 0, 1, 2)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [9, 11, 12])
def test_what_a_transactional_request_may_carry(transactional_pair: Pair, version: int) -> None:
    """Several partitions, several producers, weaker acknowledgements."""

    def story(teller: Teller) -> None:
        name, topic = f"carries-{version}", f"carried-{version}"
        teller.create(topic, 3)
        writer, other = teller.new(name), teller.new(f"{name}-other")
        teller.add("adds", writer, [(topic, 0)])

        def records(producer: Producer, sequence: int, *, transactional: bool = True) -> bytes:
            who = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": sequence}
            return stories.batch(b"v", transactional=transactional, **who)

        def send(what: str, *wanted: tuple[int, bytes], acks: int = -1) -> None:
            places = [(topic, partition, sent) for partition, sent in wanted]
            request = stories.produce(places, transactional_id=name, acks=acks)
            entry, *others = request.topic_data  # one for the topic, as clients send it
            entry.partition_data.extend(place for one in others for place in one.partition_data)
            request.topic_data = [entry]
            teller.ask(what, request, version, hide=["record_errors"])

        send("to one that was added and one that was not", (0, records(writer, 0)), (1, records(writer, 0)))
        send("of two producers", (0, records(writer, 1)), (2, records(other, 0)))
        send("transactional and not", (0, records(writer, 2)), (2, records(writer, 0, transactional=False)))
        send("acknowledged by the leader", (0, records(writer, 3)), acks=1)
        send("of no producer", (0, stories.batch(b"v")))
        send("of no producer, but transactional", (0, stories.batch(b"v", transactional=True)))
        send("a marker of its own", (0, stories.batch(b"v", transactional=True, control=True)))
        teller.transaction(name)
        teller.transaction(f"{name}-other")
        teller.end("commit", writer, commit=True)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        for partition in range(3):
            teller.log(topic, partition)

    compare(transactional_pair, story)


def test_the_second_generation(transactional_pair: Pair) -> None:
    """Partitions and groups are added by what is sent; every end gives a new epoch (KIP-890)."""

    def story(teller: Teller) -> None:
        name, topic = "second", "second-topic"
        topic_id = teller.create(topic, 2)
        place = (topic_id, 0)
        writer = teller.new(name)
        teller.send("begins", writer, place, 0, b"a", version=13)
        teller.send("another partition", writer, (topic_id, 1), 0, b"b", version=13)
        teller.commit_offsets("offsets too", writer, "second-group", [(topic, 0, 5)], version=5)
        teller.transaction(name)
        old, writer = writer, teller.end("commit", writer, commit=True, version=5)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        teller.end("commit again", old, commit=True, version=5)
        teller.end("abort of the past", old, commit=False, version=5)
        teller.send("late", old, place, 1, b"late", version=13)
        teller.commit_offsets("late", old, "second-group", [(topic, 0, 6)], version=5)
        teller.offsets("second-group", topic)
        teller.send("a gap", writer, place, 3, b"gap", version=13)
        teller.send("begins anew", writer, place, 0, b"c", version=13)
        old, writer = writer, teller.end("abort", writer, commit=False, version=5)
        teller.transaction(name, until=lambda state: state == "CompleteAbort")
        teller.send("late for the aborted", old, place, 1, b"late", version=13)
        old, writer = writer, teller.end("abort of nothing", writer, commit=False, version=5)
        teller.end("commit of nothing", writer, commit=True, version=5)
        teller.transaction(name)
        teller.send("unknown producer", Producer(name, UNKNOWN_PRODUCER, 0), place, 0, version=13)
        teller.send("unknown name", Producer("second-nobody", UNKNOWN_PRODUCER, 0), place, 0, version=13)
        teller.offsets("second-group", topic)
        for partition in range(2):
            teller.log(topic, partition)
        teller.producers(topic, 0, 1)

    compare(transactional_pair, story)


def test_a_topic_deleted_under_a_transaction(transactional_pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("gone", 2)
        teller.create("stays")
        for commit in (True, False):
            name = f"deletes-{commit}"
            if not commit:
                teller.create("gone", 2)
            writer = teller.new(name)
            teller.add("adds", writer, [("gone", 0), ("gone", 1), ("stays", 0)])
            teller.send("to the one", writer, ("gone", 0), 0)
            teller.send("to the other", writer, ("stays", 0), 0)
            teller.delete("gone")
            teller.send("to what is gone", writer, ("gone", 0), 1)
            teller.add("adds what is gone", writer, [("gone", 0)])
            teller.end("ends", writer, commit=commit)
            teller.transaction(name, until=lambda state: state.startswith("Complete"))
            teller.log("stays")

    compare(transactional_pair, story)


def test_markers(transactional_pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("marked", 2)
        place = ("marked", 0)
        teller.new("marks")
        writer = teller.new("marks")
        teller.mark("an unknown topic", writer, [("no-such-topic", 0)], commit=True)
        teller.mark("an unknown partition", writer, [("marked", 7)], commit=True)
        teller.mark("nothing to end", writer, [("marked", 1)], commit=True)
        teller.add("adds", writer, [place])
        teller.send("a record", writer, place, 0)
        teller.producers("marked", 0, 1)
        teller.mark("of the one before", writer.older(), [place], commit=False)
        teller.producers("marked")
        teller.mark("abort", writer, [place], commit=False, coordinator=3)
        teller.mark("abort again", writer, [place], commit=False, coordinator=3)
        teller.mark("by a coordinator of the past", writer, [place], commit=True, coordinator=2)
        nobody, without_epoch = Producer(None, -1, 0), Producer(None, writer.id, -1)
        teller.mark("no epoch", without_epoch, [place], commit=True, coordinator=3, any_refusal=True)
        teller.mark("no producer", nobody, [place], commit=True, coordinator=3, any_refusal=True)
        teller.producers("marked", 0, 1)
        teller.log("marked")
        teller.log("marked", 1)

    compare(transactional_pair, story)


def test_what_is_listed_and_described(transactional_pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("listed")
        for number in range(3):
            writer = teller.new(f"listed-{number}")
            if number:
                teller.add("adds", writer, [("listed", 0)])
            if number == 2:
                teller.end("commits", writer, commit=True)
                teller.transaction(f"listed-{number}", until=lambda state: state == "CompleteCommit")
        for version in range(3):
            teller.list_transactions("all", "listed-", version)
            teller.list_transactions("ongoing", "listed-", version, state_filters=["Ongoing"])
            teller.list_transactions("bad states", "listed-", version, state_filters=["Ongoing", "ongoing", "Strange"])
            teller.list_transactions("only bad states", "listed-", version, state_filters=["Strange"])
            teller.list_transactions("a producer", "listed-", version, producer_id_filters=[writer.id, 555])
            teller.list_transactions("no producer", "listed-", version, producer_id_filters=[UNKNOWN_PRODUCER])
        for duration in (0, 1, 100_000, -2):
            teller.list_transactions(f"for {duration} ms", "listed-", 1, duration_filter=duration)
        for pattern in ("listed-.*", "listed-[12]", "", "(", "isted", "x{1,2"):
            teller.list_transactions(f"like {pattern}", "listed-", 2, transactional_id_pattern=pattern)
        teller.transaction("listed-nobody")
        teller.transaction("")
        teller.producers("listed", 0, 3)
        teller.producers("no-such-topic", 0)
        teller.producers("no such topic!", 0)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6])
def test_finding_the_coordinator(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        for key in ("some", ""):
            keys = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
            teller.ask(f"of {key!r}", fc.FindCoordinatorRequest(key_type=1, **keys), version)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [3, 5])
def test_a_producer_that_was_too_slow(transactional_pair: Pair, version: int) -> None:
    """Its transaction is aborted by the coordinator, with a new epoch; it may go on if it asks (KIP-588)."""

    def story(teller: Teller) -> None:
        name, topic = f"slow-{version}", f"slowly-{version}"
        teller.create(topic)
        writer = teller.new(name, timeout_ms=300)
        teller.add("adds", writer, [(topic, 0)])
        teller.send("a record", writer, (topic, 0), 0)
        teller.transaction(name, until=lambda state: state == "CompleteAbort")
        teller.log(topic)
        teller.send("another", writer, (topic, 0), 1)
        teller.send("another, implicitly", writer, (topic, 0), 1, version=12)
        teller.add("adds once more", writer, [(topic, 0)])
        teller.add_group("adds a group", writer, "slow-group")
        teller.commit_offsets("offsets", writer, "slow-group", [(topic, 0, 1)], version=5)
        teller.end("commits", writer, commit=True, version=version)
        teller.end("aborts", writer, commit=False, version=version)
        teller.transaction(name)
        again = teller.init("goes on", writer, version, timeout_ms=60_000)
        teller.add("adds again", again, [(topic, 0)])
        teller.send("a record again", again, (topic, 0), 0)
        teller.end("commits again", again, commit=True, version=version)
        teller.transaction(name, until=lambda state: state == "CompleteCommit")
        teller.log(topic)

    compare(transactional_pair, story)


def test_the_pair_still_serves(transactional_pair: Pair) -> None:
    """Nothing above has put a broker out of order."""
    for bootstrap in transactional_pair:
        answer = ask(bootstrap, fc.FindCoordinatorRequest(key_type=1, coordinator_keys=["last"]), 4)
        assert [one.error_code for one in answer.coordinators] == [0]
