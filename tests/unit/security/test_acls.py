"""Decisions by access rules: patterns, deny before allow, implied operations, hosts, super users, nothing at all."""

import random
import time
from typing import Any

import pytest

from ottla.errors import ApiError
from ottla.security.acls import (
    CLUSTER_NAME,
    LONGEST_KEPT,
    MOST_DECISIONS,
    WILDCARD,
    AccessRule,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
    check_binding,
)
from ottla.security.authorization import Operation, ResourceType

ALICE, HERE = "User:alice", "10.0.0.1"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY


def allowing(operation: Operation, principal: str = ALICE, host: str = WILDCARD) -> AccessRule:
    return AccessRule(principal, host, operation, ALLOW)


def denying(operation: Operation, principal: str = ALICE, host: str = WILDCARD) -> AccessRule:
    return AccessRule(principal, host, operation, DENY)


def topic(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, name)


def prefix(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, PatternType.PREFIXED)


def with_rules(*rules: tuple[ResourcePattern, AccessRule], **more: Any) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(**more)
    for resource, rule in rules:
        authorizer.set_rules(resource, [*authorizer.rules(resource), rule])
    return authorizer


def may(authorizer: StandardAuthorizer, operation: Operation, name: str, principal: str = ALICE) -> bool:
    return authorizer.allows(principal, HERE, operation, TOPIC, name)


@pytest.mark.parametrize("form", ["2001:db8::7", "2001:db8:0:0:0:0:0:7", "2001:0DB8::0007"])
def test_a_rule_for_an_ipv6_address_holds_in_every_form(form: str) -> None:
    authorizer = with_rules((topic("t"), allowing(READ)), (topic("t"), denying(READ, host=form)))
    assert not authorizer.allows(ALICE, "2001:db8::7", READ, TOPIC, "t")
    assert not authorizer.verdict(ALICE, "2001:db8::7", READ, TOPIC, "t").allowed
    assert authorizer.allows(ALICE, "2001:db8::8", READ, TOPIC, "t")


def test_nothing_is_allowed_without_a_rule() -> None:
    assert not may(StandardAuthorizer(), READ, "orders")
    assert may(StandardAuthorizer(allow_if_none=True), READ, "orders")
    assert may(StandardAuthorizer(frozenset({ALICE})), READ, "orders")


def test_a_rule_for_somebody_else_closes_a_resource_that_would_be_open() -> None:
    authorizer = with_rules((topic("orders"), allowing(READ, "User:bob")), allow_if_none=True)
    assert not may(authorizer, READ, "orders")
    assert may(authorizer, READ, "payments")


@pytest.mark.parametrize("resource", [topic("orders"), topic(WILDCARD), prefix("ord"), prefix("orders")])
def test_patterns(resource: ResourcePattern) -> None:
    authorizer = with_rules((resource, allowing(READ)))
    assert may(authorizer, READ, "orders")
    assert not may(authorizer, WRITE, "orders")
    assert may(authorizer, READ, "or") == (resource.name == WILDCARD)
    assert not authorizer.allows(ALICE, HERE, READ, GROUP, "orders")
    authorizer.set_rules(resource, ())
    assert not may(authorizer, READ, "orders")
    assert authorizer.resources() == []


@pytest.mark.parametrize("denied", [topic("orders"), topic(WILDCARD), prefix("o")])
@pytest.mark.parametrize("allowed", [topic("orders"), topic(WILDCARD), prefix("orders")])
def test_deny_goes_before_allow(denied: ResourcePattern, allowed: ResourcePattern) -> None:
    authorizer = with_rules((allowed, allowing(ALL)), (denied, denying(READ)))
    assert not may(authorizer, READ, "orders")
    assert may(authorizer, WRITE, "orders")
    assert may(authorizer, DESCRIBE, "orders")  # a denied operation denies no other


def test_super_users_are_never_denied() -> None:
    authorizer = with_rules((topic(WILDCARD), denying(ALL, "User:*")), super_users=frozenset({ALICE}))
    assert may(authorizer, READ, "orders")
    assert not may(authorizer, READ, "orders", "User:bob")


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL])
def test_other_operations_imply_describe(operation: Operation) -> None:
    assert may(with_rules((topic("orders"), allowing(operation))), DESCRIBE, "orders")
    settings = with_rules((topic("orders"), allowing(Operation.ALTER_CONFIGS)))
    assert may(settings, Operation.DESCRIBE_CONFIGS, "orders")
    assert not may(settings, DESCRIBE, "orders")


def test_hosts_and_principals() -> None:
    elsewhere = with_rules((topic("orders"), allowing(READ, host="10.0.0.2")))
    assert not may(elsewhere, READ, "orders")
    assert elsewhere.allows(ALICE, "10.0.0.2", READ, TOPIC, "orders")
    assert may(with_rules((topic("orders"), allowing(READ, "User:*"))), READ, "orders")
    assert not may(with_rules((topic("orders"), allowing(READ, "User:bob"))), READ, "orders")
    assert not may(with_rules((topic("orders"), allowing(READ, "Group:alice"))), READ, "orders")


def test_a_change_takes_effect_at_once() -> None:
    authorizer = with_rules((topic("orders"), allowing(READ)))
    assert may(authorizer, READ, "orders")
    authorizer.set_rules(topic("orders"), [denying(READ)])
    assert not may(authorizer, READ, "orders")


def test_any_topic() -> None:
    def any_topic(*rules: tuple[ResourcePattern, AccessRule], **more: Any) -> bool:
        return with_rules(*rules, **more).allows_any(ALICE, HERE, WRITE, TOPIC)

    assert not any_topic()
    assert any_topic(allow_if_none=True)
    assert any_topic((topic("a"), allowing(WRITE)))
    assert any_topic((topic("a"), allowing(ALL)))
    assert not any_topic((topic("a"), allowing(READ)))
    assert not any_topic((topic("a"), allowing(WRITE)), (topic(WILDCARD), denying(WRITE)))
    assert not any_topic((topic("ab"), allowing(WRITE)), (prefix("a"), denying(WRITE)))
    assert not any_topic((topic("a"), allowing(WRITE)), (topic("a"), denying(WRITE)))
    assert not any_topic((prefix("ab"), allowing(WRITE)), (prefix("a"), denying(WRITE)))
    assert any_topic((prefix("a"), allowing(WRITE)), (prefix("ab"), denying(WRITE)))
    assert any_topic((topic(WILDCARD), allowing(WRITE)), (prefix("a"), denying(WRITE)))


def test_filters() -> None:
    literal = AclBinding(topic("orders"), allowing(READ))
    prefixed = AclBinding(prefix("ord"), allowing(WRITE, "User:bob", "10.0.0.2"))
    every = AclBinding(topic(WILDCARD), denying(ALL))
    bindings = [literal, prefixed, every]

    def found(**wanted: Any) -> list[AclBinding]:
        return [binding for binding in bindings if AclFilter(**wanted).meets(binding)]

    assert found() == bindings
    assert found(type=GROUP) == []
    assert found(name="orders") == [literal]
    assert found(name="orders", pattern=PatternType.MATCH) == bindings
    assert found(name="other", pattern=PatternType.MATCH) == [every]
    assert found(pattern=PatternType.PREFIXED) == [prefixed]
    assert found(principal="User:bob") == [prefixed]
    assert found(host=WILDCARD) == [literal, every]
    assert found(operation=READ) == [literal]
    assert found(permission=DENY) == [every]


@pytest.mark.parametrize(
    "binding",
    [
        AclBinding(topic(""), allowing(READ)),
        AclBinding(ResourcePattern(CLUSTER, "mine"), allowing(READ)),
        AclBinding(ResourcePattern(ResourceType.ANY, "x"), allowing(READ)),
        AclBinding(ResourcePattern(TOPIC, "x", PatternType.MATCH), allowing(READ)),
        AclBinding(topic("x"), allowing(Operation.ANY)),
        AclBinding(topic("x"), AccessRule(ALICE, WILDCARD, READ, PermissionType.ANY)),
        AclBinding(topic("x"), allowing(READ, "alice")),
        AclBinding(topic("x"), allowing(READ, "User:")),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused(binding: AclBinding) -> None:
    with pytest.raises(ApiError):
        check_binding(binding)


def test_what_can_be_stored() -> None:
    check_binding(AclBinding(ResourcePattern(CLUSTER, CLUSTER_NAME), allowing(ALL)))
    check_binding(AclBinding(prefix("x"), denying(READ, "User:CN=a,OU=b:c")))


def naive(rules: list[AclBinding], operation: Operation, name: str) -> bool:
    """The decision by Kafka's words, without an index."""
    matching = [each for each in rules if each.resource.matches(name) and each.rule.concerns(ALICE, HERE)]
    if any(each.rule.permission is DENY and each.rule.operation in (operation, ALL) for each in matching):
        return False
    implying = {operation, ALL}
    if operation is DESCRIBE:
        implying |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
    return any(each.rule.permission is ALLOW and each.rule.operation in implying for each in matching)


def test_the_index_decides_as_all_rules_in_turn_would() -> None:
    random_ = random.Random(17)
    names = ["a", "ab", "abc", "b", "ba", WILDCARD]
    for _ in range(400):
        rules = [
            AclBinding(
                ResourcePattern(
                    TOPIC, random_.choice(names), random_.choice((PatternType.LITERAL, PatternType.PREFIXED))
                ),
                AccessRule(
                    random_.choice((ALICE, "User:*", "User:bob")),
                    random_.choice((HERE, WILDCARD, "x")),
                    random_.choice((READ, WRITE, DESCRIBE, ALL)),
                    random_.choice((ALLOW, ALLOW, DENY)),
                ),
            )
            for _ in range(random_.randrange(5))
        ]
        authorizer = with_rules(*rules)
        for name in names[:-1]:
            for operation in (READ, WRITE, DESCRIBE):
                assert may(authorizer, operation, name) == naive(rules, operation, name), (rules, operation, name)


def test_invented_names_take_bounded_memory() -> None:
    authorizer = with_rules((prefix("t"), allowing(READ)))
    for number in range(MOST_DECISIONS + 100):
        may(authorizer, READ, f"t{number}")
    assert len(authorizer._decisions) <= MOST_DECISIONS
    assert may(authorizer, READ, "t" * 1000)
    assert not any(len(asked[-1]) > LONGEST_KEPT for asked in authorizer._decisions)


def many(count: int) -> StandardAuthorizer:
    authorizer = StandardAuthorizer()
    for number in range(count):
        resource = prefix(f"team-{number}-") if number % 10 == 0 else topic(f"topic-{number}")
        authorizer.set_rules(resource, [allowing(READ)])
    return authorizer


def test_a_decision_takes_no_longer_with_ten_times_as_many_rules() -> None:
    def seconds(count: int) -> float:
        authorizer = many(count)
        best = 1.0
        for _ in range(5):
            began = time.process_time()
            for number in range(2000):
                authorizer.verdict(ALICE, HERE, READ, TOPIC, f"team-{number % count // 10 * 10}-x")
            best = min(best, time.process_time() - began)
        return best

    assert seconds(20_000) < 3 * seconds(2_000)
