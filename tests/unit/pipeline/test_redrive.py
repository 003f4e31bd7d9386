"""What becomes of a dead letter."""

import pytest

from ottla.pipeline.redrive import REDRIVES, Account, Fate, Plan, Record, Wanted, judge
from ottla.pipeline.rows import dead_letters

WRITTEN_MS = 1_800_000_000_000
MADE_MS = 1_700_000_000_000


def letter(*more: tuple[str, bytes | None], reason: str = "malformed JSON", topic: str | None = "flights") -> Record:
    said = {
        dead_letters.REASON: reason,
        dead_letters.SOURCE_PARTITION: "2",
        dead_letters.SOURCE_OFFSET: "17",
        dead_letters.SOURCE_TIMESTAMP: str(MADE_MS),
        dead_letters.JOB: "delays",
        dead_letters.VIEW: "clean",
    }
    if topic is not None:
        said[dead_letters.SOURCE_TOPIC] = topic
    headers = [("trace", b"7"), ("empty", None), *more, *((name, value.encode()) for name, value in said.items())]
    return Record(b"UA", b"{", headers, WRITTEN_MS)


def test_the_record_goes_back_as_it_was_with_a_count() -> None:
    verdict = judge(Plan("letters"), letter(), {"flights": 3})
    assert (verdict.fate, verdict.topic, verdict.partition) == (Fate.SENT, "flights", 2)
    assert verdict.back == Record(b"UA", b"{", [("trace", b"7"), ("empty", None), (REDRIVES, b"1")], None)
    kept = judge(Plan("letters", keep_time=True), letter(), {"flights": 3})
    assert kept.back is not None
    assert kept.back.timestamp_ms == MADE_MS


def test_the_count_goes_up_until_it_is_poison() -> None:
    again = judge(Plan("letters", max_redrives=2), letter((REDRIVES, b"1")), {"flights": 3})
    assert again.back is not None
    assert again.back.headers[-1] == (REDRIVES, b"2")
    assert [name for name, _ in again.back.headers].count(REDRIVES) == 1
    poison = judge(Plan("letters", max_redrives=2), letter((REDRIVES, b"2")), {"flights": 3})
    assert (poison.fate, poison.back, poison.topic) == (Fate.POISON, None, "flights")


def test_elsewhere_it_goes_where_its_key_belongs() -> None:
    verdict = judge(Plan("letters", to="repaired"), letter(), {"flights": 3, "repaired": 9})
    assert (verdict.topic, verdict.partition) == ("repaired", None)
    shrunk = judge(Plan("letters"), letter(), {"flights": 1})  # made anew with fewer partitions
    assert (shrunk.topic, shrunk.partition) == ("flights", None)


def test_a_mended_record_goes_back_changed_and_where_its_new_key_belongs() -> None:
    same = judge(Plan("letters", mend=lambda given: b"whole " + given.reason.encode()), letter(), {"flights": 3})
    headers = [("trace", b"7"), ("empty", None), (REDRIVES, b"1")]
    assert same.back == Record(b"UA", b"whole malformed JSON", headers, None)
    assert same.partition == 2
    moved = judge(Plan("letters", mend=lambda given: given.changed(key=b"AA")), letter(), {"flights": 3})
    assert moved.back is not None
    assert (moved.back.key, moved.partition) == (b"AA", None)


def test_a_letter_that_is_not_mended_stays() -> None:
    left = judge(Plan("letters", mend=lambda _given: None), letter(), {"flights": 3})
    assert (left.fate, left.reason) == (Fate.UNMENDED, "malformed JSON")
    failed = judge(Plan("letters", mend=lambda given: given.json()), letter(), {"flights": 3})
    assert failed.fate is Fate.UNMENDED
    assert failed.reason.startswith("mend failed with JSONDecodeError: ")


@pytest.mark.parametrize("topic", [None, "gone"])
def test_without_a_topic_to_go_to_it_stays(topic: str | None) -> None:
    verdict = judge(Plan("letters"), letter(topic=topic), {"flights": 3})
    assert (verdict.fate, verdict.topic) == (Fate.HOMELESS, topic)
    assert judge(Plan("letters", to="flights"), letter(topic=topic), {"flights": 3}).fate is Fate.SENT


def test_other_records_in_the_topic_stay() -> None:
    assert judge(Plan("letters"), Record(b"k", b"v", [], WRITTEN_MS), {"flights": 3}).fate is Fate.FOREIGN
    odd = letter((dead_letters.SOURCE_OFFSET, b"?"))
    unreadable = Record(odd.key, odd.value, [*odd.headers, (dead_letters.SOURCE_OFFSET, b"?")], WRITTEN_MS)
    assert judge(Plan("letters"), unreadable, {"flights": 3}).fate is Fate.FOREIGN


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        (Wanted(), True),
        (Wanted(reason="json"), True),
        (Wanted(reason="Avro"), False),
        (Wanted(flow="clean"), True),
        (Wanted(flow="delays"), False),
        (Wanted(since_ms=WRITTEN_MS, until_ms=WRITTEN_MS + 1), True),
        (Wanted(since_ms=WRITTEN_MS + 1), False),
        (Wanted(until_ms=WRITTEN_MS), False),
        (Wanted(reason="json", flow="delays"), False),
    ],
)
def test_filters(wanted: Wanted, is_wanted: bool) -> None:
    fate = judge(Plan("letters", wanted), letter(), {"flights": 3}).fate
    assert fate is (Fate.SENT if is_wanted else Fate.LEFT)


def test_reasons_that_are_all_different_do_not_pile_up() -> None:
    account = Account()
    for number in range(100_000):
        account.add(Fate.UNMENDED, f"mend failed with KeyError: 'order {number}'", "orders")
    account.add(Fate.UNMENDED, "mend failed with KeyError: 'order 7'", "orders")
    account.add(Fate.SENT, "malformed JSON", "orders", 5)
    assert (account.count(Fate.UNMENDED), account.count(Fate.SENT)) == (100_001, 5)
    assert account.fates[Fate.UNMENDED, "mend failed with KeyError: 'order 7'", "orders"] == 2
    assert len(account.fates) <= 1_002
