"""Produce, Fetch and ListOffsets told as stories to genuine Kafka and to Ottla: the same answers, field by field.

Records are compared byte by byte. Wording of errors is left out; where Ottla means to answer otherwise, the request is
not in a story.
"""

import time
from collections.abc import Callable, Iterator
from struct import pack_into
from typing import NamedTuple

import pytest
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.stories import NOW_MS, UNKNOWN_ID, Teller, at_once, batch, fetch, list_offsets, produce

from ottla.protocol.messages import delete_records as dr
from ottla.records.batch import Compression, seal

DETAILS = ("error_message", "batch_index_error_message")
"""The texts of errors."""


class Pair(NamedTuple):
    genuine: str
    ottla: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with GenuineKafka() as genuine, OttlaProcess() as ottla:
        yield Pair(genuine.bootstrap, ottla.bootstrap)


def compare(pair: Pair, story: Callable[[Teller], None]) -> None:
    tellers = [Teller(bootstrap) for bootstrap in pair]
    at_once(story, tellers)
    assert tellers[1].lines == tellers[0].lines


def resealed(records: bytes) -> bytes:
    """The batch with the length and the CRC of what it holds."""
    whole = bytearray(records)
    pack_into(">i", whole, 8, len(whole) - 12)
    seal(whole)
    return bytes(whole)


def trim(teller: Teller, name: str, offset: int) -> None:
    topic = dr.DeleteRecordsTopic(name=name, partitions=[dr.DeleteRecordsPartition(partition_index=0, offset=offset)])
    (answer,) = ask(teller.bootstrap, dr.DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2).topics
    assert answer.partitions[0].error_code == 0


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17])
def test_fetching_from_one_partition(pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"one-partition-{version}"
        topic_id = teller.create(name)
        topic = topic_id if version >= 13 else name
        teller.fill(name, batch(b"a", b"b", b"c"), batch(b"d"), batch(b"e" * 100, b"f"))
        for offset in (0, 1, 3, 5, 6, 7, 100, -1, -2):
            teller.ask(f"from {offset}", fetch([(topic, 0, offset)]), version)
        teller.ask("read committed", fetch([(topic, 0, 4)], isolation_level=1), version)
        teller.ask("read committed, at the end", fetch([(topic, 0, 6)], isolation_level=1), version)
        teller.ask("no such partition", fetch([(topic, 7, 0)]), version)
        if version < 13:
            teller.ask("no such topic", fetch([("no-such-topic", 0, 0)]), version)
            teller.ask("an invalid name", fetch([("no such topic!", 0, 0)]), version)
        else:
            teller.ask("no such topic", fetch([(UNKNOWN_ID, 0, 0)]), version)
            teller.ask("two topics, one unknown", fetch([(UNKNOWN_ID, 0, 0), (topic, 0, 5)]), version)
        if version >= 9:
            for epoch in (0, 1, 5, -1):
                teller.ask(f"at leader epoch {epoch}", fetch([(topic, 0, 5)], leader_epoch=epoch), version)
        trim(teller, name, 4)
        for offset in (0, 3, 4):
            teller.ask(f"trimmed, from {offset}", fetch([(topic, 0, offset)]), version)

    compare(pair, story)


def test_how_much_is_fetched(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("much", 3)
        for partition in range(3):
            batches = [batch(bytes([65 + number]) * 200) for number in range(4)]
            teller.fill("much", *batches, partition=partition)
        everything = [("much", 0, 0), ("much", 1, 0), ("much", 2, 0)]
        for max_bytes in (0, 1, 260, 300, 600, 1000, 1200, 1500, 3000):
            teller.ask(f"at most {max_bytes}", fetch(everything, max_bytes=max_bytes), 12)
        for partition_max_bytes in (0, 1, 300, 600):
            request = fetch(everything, partition_max_bytes=partition_max_bytes)
            teller.ask(f"at most {partition_max_bytes} of each", request, 12)
        teller.ask("the first is at its end", fetch([("much", 0, 4), *everything[1:]], max_bytes=1), 12)
        teller.ask("the same twice", fetch([("much", 0, 0), ("much", 0, 2)]), 12)

    compare(pair, story)


def test_how_long_a_fetch_waits(pair: Pair) -> None:
    def timed(teller: Teller, what: str, **wanted: object) -> None:
        began = time.monotonic()
        teller.ask(what, fetch(max_wait_ms=1500, **wanted), 12)  # type: ignore[arg-type] # as `fetch` takes them
        teller.note(f"{what}: {'waited' if time.monotonic() - began > 1.4 else 'at once'}")

    def story(teller: Teller) -> None:
        teller.create("waits", 2)
        teller.fill("waits", batch(b"a" * 300))
        timed(teller, "at the end", wanted=[("waits", 0, 1)])
        timed(teller, "enough", wanted=[("waits", 0, 0)], min_bytes=300)
        timed(teller, "too little", wanted=[("waits", 0, 0)], min_bytes=5000)
        timed(teller, "more wanted than allowed", wanted=[("waits", 0, 0)], min_bytes=5000, max_bytes=100)
        timed(
            teller, "more wanted than allowed of each", wanted=[("waits", 0, 0)], min_bytes=5000, partition_max_bytes=9
        )
        timed(teller, "nothing wanted", wanted=[("waits", 0, 1)], min_bytes=0)
        timed(teller, "out of range", wanted=[("waits", 0, 9), ("waits", 1, 0)])
        timed(teller, "no such topic", wanted=[("no-such-topic", 0, 0)])
        timed(teller, "no such topic among others", wanted=[("no-such-topic", 0, 0), ("waits", 0, 1)])
        timed(teller, "no such partition among others", wanted=[("waits", 9, 0), ("waits", 0, 1)])
        timed(teller, "no partitions", wanted=[])

    compare(pair, story)


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_fetch_session(pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"session-{version}"
        topic_id = teller.create(name, 3)
        topic = topic_id if version >= 13 else name
        teller.fill(name, batch(b"a"))

        def ask_next(what: str, epoch: int, wanted: list[tuple[str | object, int, int]], **more: object) -> None:
            teller.ask(what, fetch(wanted, session=(session_id, epoch), **more), version)  # type: ignore[arg-type]

        opened = teller.ask("open", fetch([(topic, 0, 0), (topic, 1, 0)], session=(0, 0)), version)
        session_id = opened.session_id
        ask_next("again", 1, [])
        ask_next("read on", 2, [(topic, 0, 1)])
        ask_next("nothing new", 3, [])
        teller.fill(name, batch(b"b"), partition=1)
        ask_next("something new", 4, [])
        ask_next("read that", 5, [(topic, 1, 1)])
        ask_next("a third", 6, [(topic, 2, 0)])
        ask_next("out of range", 7, [(topic, 2, 5)])
        ask_next("still", 8, [])
        ask_next("mended", 9, [(topic, 2, 0)])
        ask_next("forget one", 10, [], forgotten=[(topic, [2])])
        ask_next("forget a stranger", 11, [], forgotten=[(topic, [77])])
        ask_next("no such partition", 12, [(topic, 9, 0)])
        ask_next("forget it", 13, [], forgotten=[(topic, [9])])
        ask_next("an old epoch", 13, [])
        ask_next("an epoch too far", 15, [])
        ask_next("go on", 14, [])
        trim(teller, name, 1)
        ask_next("trimmed", 15, [])
        ask_next("nothing new again", 16, [])
        other_version, other_topic = (12, name) if version >= 13 else (13, topic_id)
        other = fetch([(other_topic, 0, 1)], session=(session_id, 17))
        teller.ask("ids and names mixed", other, other_version)
        ask_next("after that", 17, [])
        ask_next("forget all", 18, [], forgotten=[(topic, [0, 1])])
        ask_next("empty", 19, [])
        reopened = teller.ask("open anew", fetch([(topic, 0, 0)], session=(0, 0)), version)
        session_id = reopened.session_id
        ask_next("close", -1, [])
        ask_next("closed", 1, [])
        teller.ask("no such session", fetch([], session=(12345, 1)), version)
        teller.ask("open with nothing", fetch([], session=(0, 0)), version)
        teller.ask("an epoch without a session", fetch([(topic, 0, 0)], session=(0, 5)), version)

    compare(pair, story)


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_that_is_deleted_and_made_anew_under_a_session(pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"anew-{version}"
        old_id = teller.create(name)
        topic = old_id if version >= 13 else name
        teller.fill(name, batch(b"a"))
        opened = teller.ask("open", fetch([(topic, 0, 0)], session=(0, 0)), version)
        session_id = opened.session_id
        teller.delete(name)
        # By id Ottla says UNKNOWN_TOPIC_ID, where Kafka's session remembers the name and is surprised by its new id.
        hidden = ("error_code", "aborted_transactions") if version >= 13 else ()
        teller.ask("deleted", fetch([], session=(session_id, 1)), version, hide=hidden)
        teller.ask("deleted, still", fetch([], session=(session_id, 2)), version, hide=hidden)
        new_id = teller.create(name)
        teller.fill(name, batch(b"b"))
        teller.ask("made anew", fetch([], session=(session_id, 3)), version, hide=hidden)
        if version >= 13:
            teller.ask("by its new id", fetch([(new_id, 0, 0)]), version)
            teller.ask("by its old id", fetch([(old_id, 0, 0)]), version)
            teller.ask("produce by the old id", produce([(old_id, 0, batch(b"c"))]), 13, hide=DETAILS)
            teller.ask("produce by the new id", produce([(new_id, 0, batch(b"c"))]), 13, hide=DETAILS)

    compare(pair, story)


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_what_can_be_wrong_with_a_produce(pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"produce-{version}"
        teller.create(name, 2)
        good = batch(b"good", b"better")

        def ask_produce(what: str, records: bytes | None, partition: int = 0, **more: object) -> None:
            request = produce([(name, partition, records)], **more)  # type: ignore[arg-type] # as `produce` takes them
            teller.ask(what, request, version, hide=(*DETAILS, "log_start_offset"))

        ask_produce("good", good)
        ask_produce("to the leader alone", good, acks=1)
        for acks in (2, -2, 7):
            ask_produce(f"acks={acks}", good, acks=acks)
        ask_produce("no such partition", good, partition=9)
        ask_produce("a negative partition", good, partition=-1)
        teller.ask("no such topic", produce([("no-such-topic", 0, good)]), version, hide=DETAILS)
        teller.ask("two topics", produce([(name, 1, good), ("no-such-topic", 0, good)]), version, hide=DETAILS)
        ask_produce("two batches", batch(b"one") + batch(b"two"))
        ask_produce("a wrong CRC", good[:-1] + b"!")
        ask_produce("cut off", good[:-3])
        ask_produce("a header alone", good[:61])
        ask_produce("part of a header", good[:30])
        ask_produce("an old format", good[:16] + b"\x01" + good[17:])
        ask_produce("a format to come", good[:16] + b"\x03" + good[17:])
        ask_produce("too large", batch(b"x" * 1_100_000))
        ask_produce("nothing", b"")
        ask_produce("too far ahead", batch(b"v", timestamp_ms=NOW_MS + 10 * 3_600_000))
        ask_produce("no timestamp", batch(b"v", timestamp_ms=-1))
        ask_produce("its own offsets", batch(b"v", base_offset=-700))
        ask_produce("a control batch", batch(b"v", control=True))
        ask_produce("a gap between offsets", batch(b"v", last_offset=5))
        packed = batch(b"v" * 50, b"w", compression=Compression.GZIP)
        for what, records in {
            "garbage": good[:61] + bytes(range(200, 200 + len(good) - 61)),
            "bytes left": good + b"\0",
            "a record less than counted": good[: 61 + good[61] // 2 + 1],
            "garbage for gzip": packed[:61] + bytes(range(len(packed) - 61)),
        }.items():  # Kafka has UNKNOWN_SERVER_ERROR for some of it, Ottla INVALID_RECORD for all
            refused = produce([(name, 0, resealed(records))])
            answer = teller.ask(what, refused, version, hide=(*DETAILS, "log_start_offset", "error_code"))
            teller.note(f"{what}: {answer.responses[0].partition_responses[0].error_code != 0}")
        ask_produce("a wrong largest timestamp", resealed(good[:35] + bytes(7) + b"\1" + good[43:]))
        teller.ask("twice", produce([(name, 1, good), (name, 1, batch(b"last"))]), version, hide=DETAILS)
        if version < 7:
            ask_produce("zstd too early", batch(b"v" * 50, compression=Compression.ZSTD))
        if version >= 7:
            ask_produce("gzip", batch(b"v" * 50, compression=Compression.GZIP))
            ask_produce("zstd", batch(b"v" * 50, compression=Compression.ZSTD))
        ask_produce("good in the end", good)
        teller.ask("all of it", fetch([(name, 0, 0)]), 12)

    compare(pair, story)


def test_topics_with_rules_of_their_own(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("compacted", cleanup_policy="compact")
        refused = produce([("compacted", 0, batch(b"v", b"w"))])
        teller.ask("no keys", refused, 9, hide=(*DETAILS, "log_start_offset"))
        teller.create("young", message_timestamp_before_max_ms="1000")
        refused = produce([("young", 0, batch(b"v", b"w", timestamp_ms=NOW_MS - 10_000_000))])
        teller.ask("too old", refused, 9, hide=(*DETAILS, "log_start_offset"))
        teller.create("small", max_message_bytes="200")
        teller.ask("too large", produce([("small", 0, batch(b"v" * 300))]), 9, hide=DETAILS)
        teller.ask("small enough", produce([("small", 0, batch(b"v"))]), 9, hide=DETAILS)
        teller.create("two-replicas", min_insync_replicas="2")
        teller.ask("too few replicas", produce([("two-replicas", 0, batch(b"v"))]), 9, hide=DETAILS)
        teller.ask("nobody asks for them", produce([("two-replicas", 0, batch(b"v"))], acks=1), 9, hide=DETAILS)
        teller.create("stamped", message_timestamp_type="LogAppendTime")
        answer = teller.ask("stamped", produce([("stamped", 0, batch(b"v"))]), 9, hide=(*DETAILS, "log_append_time_ms"))
        teller.note(f"stamped: {answer.responses[0].partition_responses[0].log_append_time_ms > 0}")
        teller.ask("an internal topic", produce([("__consumer_offsets", 0, batch(b"v"))]), 9, hide=DETAILS)

    compare(pair, story)


def test_an_idempotent_producer(pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("idempotent", 2)

        def send(what: str, sequence: int, *, epoch: int = 0, producer: int = 77, count: int = 2, at: int = 0) -> None:
            records = batch(*[b"v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
            hidden = (*DETAILS, "log_start_offset", "log_append_time_ms")  # Kafka gives those of some errors, too
            teller.ask(what, produce([("idempotent", at, records)]), 9, hide=hidden)

        send("first", 0)
        send("again", 0)
        send("second", 2)
        send("first again", 0)
        send("a gap", 10)
        send("partly known", 3)
        for sequence in range(4, 16, 2):
            send(f"at {sequence}", sequence)
        send("long ago", 0)
        send("a new epoch in the middle", 5, epoch=1)
        send("a new epoch", 0, epoch=1)
        send("an old epoch", 16, epoch=0)
        send("another that begins in the middle", 9, producer=78, at=1)
        send("and goes on", 11, producer=78, at=1)
        send("no sequence", -1, producer=79)
        send("no epoch", 0, producer=80, epoch=-1)

    compare(pair, story)


@pytest.mark.parametrize("version", [1, 2, 4, 6, 7, 8, 9, 10])
def test_listing_offsets(pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        name = f"listed-{version}"
        teller.create(name, 2)
        for number in range(3):
            teller.fill(name, batch(b"a", b"b", timestamp_ms=NOW_MS + 1000 * number))
        teller.fill(name, batch(b"late", timestamp_ms=NOW_MS + 500))
        times = [NOW_MS + at for at in (-1, 0, 1, 2, 500, 501, 1000, 1001, 2000, 2001, 2002, 99_999)]
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1, *times):
            shown = f"{timestamp - NOW_MS:+}" if timestamp > NOW_MS - 10 else str(timestamp)
            for isolation_level in (0, 1) if version >= 2 and timestamp in (-1, times[0]) else (0,):
                request = list_offsets([(name, 0, timestamp), (name, 1, timestamp)], isolation_level=isolation_level)
                teller.ask(f"{shown} at level {isolation_level}", request, version)
        teller.ask("no such partition", list_offsets([(name, 5, -1)]), version)
        teller.ask("no such topic", list_offsets([("no-such-topic", 0, -1)]), version)
        if version >= 4:
            for epoch in (0, 3):
                teller.ask(f"at leader epoch {epoch}", list_offsets([(name, 0, -1)], leader_epoch=epoch), version)
        trim(teller, name, 3)
        for timestamp in (-1, -2, -3, -4, times[0], times[6]):
            teller.ask(f"trimmed, {timestamp - NOW_MS:+}", list_offsets([(name, 0, timestamp)]), version)
        trim(teller, name, 7)
        for timestamp in (-1, -2, -4, times[0]):  # not -3: Kafka still tells of a record that is deleted
            teller.ask(f"empty, {timestamp - NOW_MS:+}", list_offsets([(name, 0, timestamp)]), version)

    compare(pair, story)
