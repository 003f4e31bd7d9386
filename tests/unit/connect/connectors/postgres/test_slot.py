"""Whether a position is a place in the WAL that a server has."""

from typing import Any

import pytest

from ottla.connect.api import ConnectError
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.slot import SlotState, System, check_goes_on, check_same, timelines

NAMES: dict[str, Any] = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
SETTINGS = PostgresSettings(**NAMES)


def slot(confirmed: int) -> SlotState:
    return SlotState(confirmed, 0, "reserved", None)


@pytest.mark.parametrize(
    ("position", "system", "confirmed"),
    [
        ({"lsn": 100}, System("1", 1, 100), 50),
        ({"lsn": 100, "system": "1", "timeline": 1}, System("1", 1, 100), 50),
        ({"lsn": 100, "system": "1", "timeline": 1}, System("2", 1, 100), 100),
        ({"lsn": 100, "system": "1", "timeline": 1}, System("1", 2, 200, left_at=100), 50),
        ({"lsn": 100, "transaction": 149, "system": "1", "timeline": 1}, System("1", 3, 200, left_at=150), 50),
    ],
    ids=["old position", "same", "other system, slot there", "promoted", "promoted behind a transaction"],
)
def test_a_position_that_the_server_has_is_gone_on_with(
    position: dict[str, Any], system: System, confirmed: int
) -> None:
    check_same(system, slot(confirmed), SETTINGS, position)
    check_goes_on(slot(confirmed), SETTINGS, position)


@pytest.mark.parametrize(
    ("position", "system", "sentence"),
    [
        ({"lsn": 101}, System("1", 1, 100), r"has WAL up to 0/64 only, and this connector has read up to 0/65"),
        ({"lsn": 60, "system": "1", "timeline": 1}, System("2", 1, 100), r"is another system \(2\) than the one \(1\)"),
        ({"lsn": 60, "system": "1", "timeline": 3}, System("1", 2, 100), r"timeline 2, whose history lacks timeline 3"),
        (
            {"lsn": 60, "system": "1", "timeline": 1},
            System("1", 2, 100, left_at=59),
            r"left timeline 1 at 0/3B, and this connector has read it up to 0/3C",
        ),
        (
            {"lsn": 55, "transaction": 60, "system": "1", "timeline": 1},
            System("1", 2, 100, left_at=60),
            r"left timeline 1 at 0/3C, and this connector has read it up to 0/3C",
        ),
    ],
)
def test_one_that_it_has_not_is_an_error_that_names_the_choices(
    position: dict[str, Any], system: System, sentence: str
) -> None:
    with pytest.raises(ConnectError, match=sentence) as raised:
        check_same(system, slot(50), SETTINGS, position)
    for choice in ("connect it to the server that has", "delete the connector's offsets", 'offset to {"lsn": 50}'):
        assert choice in str(raised.value)
    with pytest.raises(ConnectError) as raised:
        check_same(system, None, SETTINGS, position)
    assert "offset to" not in str(raised.value), "without a slot there is nothing to go on from"


def test_the_slot_may_be_where_a_half_done_transaction_is_committed_and_no_further() -> None:
    position = {"lsn": 100, "transaction": 200, "events": 3}
    check_goes_on(slot(200), SETTINGS, position)
    for beyond, place in ((201, position), (101, {"lsn": 100})):
        with pytest.raises(ConnectError, match="has been moved to"):
            check_goes_on(slot(beyond), SETTINGS, place)


def test_a_history_says_where_each_timeline_was_left() -> None:
    history = "# made by hand\n1\t0/3000148\tno recovery target specified\n\n  2\t16/B374D848\tbefore 2026-11-22\n"
    assert timelines(history) == {1: 0x3000148, 2: 0x16B374D848}
