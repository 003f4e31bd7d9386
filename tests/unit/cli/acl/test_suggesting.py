"""Rules that are suggested for refusals: the fewest, literal, and none that would open more than was refused."""

import json
import shlex
from typing import Any

import pytest

from ottla.cli.acl.suggesting import Denial, Suggestions, read_denials, suggestions_for
from ottla.security.acls import (
    AccessRule,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
)
from ottla.security.audit_events import REFUSAL, REFUSED, AuditEvent, line_of, suppressed_line, time_text
from ottla.security.authorization import Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, CREATE = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE
NOW_MS = 1_700_000_000_000


def denial(
    operation: Operation, name: str, kind: ResourceType = TOPIC, user: str = "bob", host: str = "10.0.0.1"
) -> Denial:
    return Denial(f"User:{user}", operation, kind, name, host)


def allowing(found: Suggestions) -> StandardAuthorizer:
    authorizer = StandardAuthorizer()
    for suggestion in found.suggestions:
        for binding in suggestion.bindings:
            authorizer.set_rules(binding.resource, [*authorizer.rules(binding.resource), binding.rule])
    return authorizer


def commands(*denials: Denial, rules: Any = ()) -> list[str]:
    return [each.command for each in suggestions_for(denials, rules).suggestions]


def test_a_consumer_and_a_producer_get_their_roles() -> None:
    assert commands(denial(DESCRIBE, "a"), denial(READ, "a"), denial(READ, "b"), denial(READ, "g", GROUP)) == [
        "ottla acl grant consumer User:bob --topic=a --topic=b --group=g"
    ]
    assert commands(denial(WRITE, "a"), denial(CREATE, "a"), denial(DESCRIBE, "a")) == [
        "ottla acl grant producer User:bob --topic=a"
    ]


def test_what_is_no_role_gets_single_rules_and_nothing_that_is_implied() -> None:
    asked = [denial(WRITE, "a"), denial(DESCRIBE, "a"), denial(Operation.ALTER_CONFIGS, "a")]
    assert commands(*asked, denial(Operation.DESCRIBE_CONFIGS, "a"), denial(CREATE, "kafka-cluster", CLUSTER)) == [
        "ottla acl add allow User:bob write topic a",
        "ottla acl add allow User:bob alter-configs topic a",
        "ottla acl add allow User:bob create cluster",
    ]


def test_suggestions_allow_what_was_refused_and_nothing_else() -> None:
    asked = [denial(READ, f"t{number}", host=f"10.0.0.{number}") for number in range(9)]
    asked += [denial(READ, "g", GROUP), denial(WRITE, "t1"), denial(CREATE, "u", user="alice")]
    authorizer = allowing(suggestions_for(asked, ()))
    assert all(authorizer.allows(each.principal, each.host, *each[1:4]) for each in asked)
    assert not authorizer.allows("User:bob", "10.0.0.1", READ, TOPIC, "t99")
    assert not authorizer.allows("User:alice", "10.0.0.1", READ, TOPIC, "t1")


def test_what_is_allowed_by_now_is_left_out() -> None:
    rule = AclBinding(ResourcePattern(TOPIC, "a"), AccessRule("User:bob", "*", READ, PermissionType.ALLOW))
    assert commands(denial(READ, "a"), denial(DESCRIBE, "a"), rules=[rule]) == []


def test_prefixes_are_offered_for_many_names_and_never_taken() -> None:
    asked = [denial(READ, f"sales.{land}.{number}") for land in ("de", "fr") for number in range(5)]
    asked += [denial(READ, f"other{number}") for number in range(9)]
    found = suggestions_for(asked, ())
    assert all(each.bindings[0].resource.pattern is PatternType.LITERAL for each in found.suggestions)
    (offer,) = found.offers
    assert offer.prefix == "sales."
    assert len(offer.names) == 10
    assert offer.commands == ("ottla acl add allow User:bob read topic --prefix sales.",)
    assert suggestions_for(asked[:4], ()).offers == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (denial(READ, "*"), "a rule of this name is for all resources"),
        (denial(Operation.CLUSTER_ACTION, "kafka-cluster", CLUSTER), "super.users"),
        (denial(READ, "g\x1b[2J", GROUP), "cannot be shown safely"),
        (denial(READ, "a\u202e", GROUP), "cannot be shown safely"),
        (denial(READ, "", GROUP), "cannot be shown safely"),
        (denial(Operation.DELETE, "x", ResourceType.TRANSACTIONAL_ID), "no rule allows this"),
    ],
)
def test_some_rules_are_never_suggested(asked: Denial, reason: str) -> None:
    found = suggestions_for([asked], ())
    assert found.suggestions == []
    assert found.offers == []
    assert reason in found.left_out[0].reason


def test_a_denying_rule_is_named_with_the_command_that_removes_it() -> None:
    deny = AclBinding(
        ResourcePattern(TOPIC, "pay", PatternType.PREFIXED),
        AccessRule("User:bob", "10.0.0.1", READ, PermissionType.DENY),
    )
    found = suggestions_for([denial(READ, "payments")], [deny])
    assert found.suggestions == []
    assert found.left_out[0].reason.endswith("ottla acl remove deny User:bob read topic --prefix --host 10.0.0.1 pay")


def test_names_cannot_run_commands() -> None:
    name = "$(reboot); `x` '\"&"
    (command,) = commands(denial(READ, name, GROUP))
    assert shlex.split(command)[-1] == name
    (command,) = commands(denial(READ, "--dry-run", GROUP))
    assert shlex.split(command)[-2:] == ["--", "--dry-run"]


def test_clients_without_a_name_come_last() -> None:
    asked = [denial(READ, "a", user="ANONYMOUS"), denial(READ, "a", user="zoe")]
    assert [each.principal for each in suggestions_for(asked, ()).suggestions] == ["User:zoe", "User:ANONYMOUS"]


def line(name: str, when_ms: int, **more: Any) -> bytes:
    event = AuditEvent(REFUSAL, "User:bob", "10.0.0.1", "OUTSIDE", "FETCH", REFUSED, "READ", "TOPIC", name)
    return line_of(event, when_ms, 1, more)


def test_an_audit_log_is_read_from_a_time_on() -> None:
    lines = [
        line("old", NOW_MS - 1),
        line("new", NOW_MS),
        line("new", NOW_MS + 10_000, repeated=41, since=time_text(NOW_MS)),
        line("x" * 600, NOW_MS),
        suppressed_line(REFUSAL, 7, "rate", NOW_MS, 1),
        suppressed_line("authentication", 9, "rate", NOW_MS, 1),
        json.dumps({"time": time_text(NOW_MS), "event": "change"}).encode(),
        b"{half a li\n",
        b"[1]\n",
    ]
    found = read_denials(lines, time_text(NOW_MS))
    assert found.denials == {Denial("User:bob", READ, TOPIC, "new", "10.0.0.1"): 42}
    assert (found.suppressed, found.unreadable) == (7, 3)
