"""Whatever workers do with a sound broker, nothing is found; change one thing in what they saw, and it is."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.checker import Kind, check
from tests.chaos.history import operations
from tests.chaos.sound_log import SoundLog

Lines = list[dict[str, Any]]
SEEDS = st.integers(0, 2**32)


def kinds(lines: Lines) -> set[Kind]:
    return {anomaly.kind for anomaly in check(operations(lines))}


def audited(lines: Lines) -> dict[str, list[list[int]]]:
    """What the audit found."""
    logs: dict[str, list[list[int]]] = lines[-1]["steps"][0][1]
    return logs


def somewhere(lines: Lines, random: Random) -> tuple[str, int]:
    """A key, and which of its records."""
    key = random.choice([key for key, records in audited(lines).items() if len(records) > 2])
    return key, random.randrange(len(audited(lines)[key]) - 1)


def polls(lines: Lines, key: str) -> Iterator[list[list[int]]]:
    """Records of all polls of a key."""
    for line in lines:
        if line["state"] != "invoke":
            for step in line.get("steps", ()):
                if step[0] == "poll" and key in step[1]:
                    yield step[1][key]


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_nothing_is_found_in_what_a_sound_broker_does(seed: int) -> None:
    assert check(SoundLog(seed).story.operations) == []


def lose(lines: Lines, random: Random) -> set[Kind]:
    """A record that nobody is given."""
    key, index = somewhere(lines, random)
    lost = audited(lines)[key][index]
    for records in polls(lines, key):
        records[:] = [record for record in records if record != lost]
    return {Kind.LOST_WRITE, Kind.TORN_TRANSACTION, Kind.SKIPPED}


def skip(lines: Lines, random: Random) -> set[Kind]:
    """A record that one consumer is not given."""
    key, index = somewhere(lines, random)
    audited(lines)[key].pop(index)
    return {Kind.SKIPPED, Kind.VANISHED, Kind.LOST_WRITE, Kind.TORN_TRANSACTION}


def repeat(lines: Lines, random: Random) -> set[Kind]:
    """A record that is in the log once more."""
    key, index = somewhere(lines, random)
    records = audited(lines)[key]
    records.append([records[-1][0] + 5, records[index][1]])
    return {Kind.DUPLICATE}


def overwrite(lines: Lines, random: Random) -> set[Kind]:
    """A record whose place another one takes."""
    key, index = somewhere(lines, random)
    other = next(other for other in audited(lines) if other != key and audited(lines)[other])
    audited(lines)[key][index][1] = audited(lines)[other][0][1]
    return {Kind.TWO_VALUES, Kind.UNWRITTEN_READ}


def turn_round(lines: Lines, random: Random) -> set[Kind]:
    """Two records that come in the wrong order."""
    key, index = somewhere(lines, random)
    records = audited(lines)[key]
    records[index], records[index + 1] = records[index + 1], records[index]
    return {Kind.WENT_BACK}


def fail(lines: Lines, random: Random) -> set[Kind]:
    """A transaction that was read, and whose producer says that it failed."""
    committed = [line for line in lines if (line["state"], line["what"]) == ("ok", "txn")]
    sending = [line for line in committed if any(step[0] == "send" for step in line["steps"])]
    random.choice(sending)["state"] = "fail"
    return {Kind.ABORTED_READ}


@pytest.mark.parametrize("change", [lose, skip, repeat, overwrite, turn_round, fail])
@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_what_was_changed_is_found(change: Callable[[Lines, Random], set[Kind]], seed: int) -> None:
    lines: Lines = [dict(deepcopy(line)) for line in SoundLog(seed).story.lines]
    expected = change(lines, Random(seed))
    assert kinds(lines) & expected, "found nothing of what was changed"
