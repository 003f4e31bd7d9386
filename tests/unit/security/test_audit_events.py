"""Lines of an audit log, and the limits of a flood of events."""

import json

from ottla.security.audit_events import (
    AUTHENTICATION,
    CHANGE,
    FAILED,
    LONGEST_TEXT,
    MOST_REMEMBERED,
    REFUSAL,
    REFUSED,
    REPEATS_S,
    SUCCEEDED,
    AuditEvent,
    AuditLimits,
    line_of,
)


def refusal(name: str = "orders", address: str = "10.0.0.7", principal: str = "User:bob") -> AuditEvent:
    return AuditEvent(REFUSAL, principal, address, "OUTSIDE", "PRODUCE", REFUSED, "WRITE", "TOPIC", name)


def change(outcome: str = SUCCEEDED) -> AuditEvent:
    return AuditEvent(CHANGE, "User:bob", "10.0.0.7", "OUTSIDE", "CREATE_TOPICS", outcome, None, "TOPIC", "orders")


def test_a_line_has_what_an_auditor_asks_for() -> None:
    assert json.loads(line_of(refusal(), 1_700_000_000_123, 3)) == {
        "time": "2023-11-14T22:13:20.123Z",
        "broker": 3,
        "event": "refusal",
        "principal": "User:bob",
        "address": "10.0.0.7",
        "listener": "OUTSIDE",
        "api": "PRODUCE",
        "outcome": "refused",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "orders",
    }


def test_names_cannot_forge_lines_or_reach_a_terminal() -> None:
    line = line_of(refusal('x"}\n{"event": "change"}\r\x1b[2J\x9b\u202e\u2028'), 0, 1)
    assert line.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in line[:-1])


def test_long_names_are_cut_and_the_line_says_so() -> None:
    found = json.loads(line_of(refusal("y" * 40_000), 0, 1))
    assert found["resource"] == "y" * LONGEST_TEXT
    assert found["cut"] == ["resource"]


def test_repeats_get_one_line_together() -> None:
    limits = AuditLimits(10)
    assert limits.admits(refusal(), 0.0, 5)
    assert not any(limits.admits(refusal(), 1.0, 6) for _ in range(1000))
    assert list(limits.due(REPEATS_S - 1)) == []
    assert list(limits.due(REPEATS_S)) == [(refusal(), 1000, 5)]
    assert not limits.is_waiting
    assert limits.admits(refusal(), REPEATS_S, 7)
    assert list(limits.due(100.0)) == []  # it has not come again


def test_one_address_that_invents_names_does_not_hide_others() -> None:
    limits = AuditLimits(10)
    assert sum(limits.admits(refusal(f"a{number}"), 0.0, 0) for number in range(100)) == 5
    assert sum(limits.admits(refusal(f"b{number}", "10.0.0.8"), 0.5, 0) for number in range(100)) == 5
    login = AuditEvent(AUTHENTICATION, "User:bob", "10.0.0.7", "OUTSIDE", "TLS", SUCCEEDED)
    assert limits.admits(login, 0.5, 0)
    assert limits.admits(refusal("later"), 1.0, 0)
    assert limits.take_suppressed() == {(REFUSAL, "rate"): 190}
    assert limits.take_suppressed() == {}


def test_changes_that_were_made_are_never_left_out_and_failed_ones_are_limited() -> None:
    limits = AuditLimits(10)
    assert all(limits.admits(change(), 0.0, 0) for _ in range(10_000))
    assert sum(limits.admits(change(FAILED), 0.0, 0) for _ in range(100)) == 5


def test_what_is_remembered_is_bounded() -> None:
    limits = AuditLimits(1_000_000)
    for number in range(MOST_REMEMBERED + 100):
        limits.admits(refusal(str(number)), 0.0, 0)
    assert not limits.admits(refusal("0"), 0.0, 0)
    assert limits.admits(refusal(str(MOST_REMEMBERED + 50)), 0.0, 0)
