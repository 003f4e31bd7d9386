"""What decides, and what would change it: rules to add, rules to remove, super users, settings."""

from ottla.cli.acl.settings import HIDDEN, AuthorizerSettings, shared
from ottla.cli.acl.why import Explanation, explain
from ottla.security.acls import AccessRule, AclBinding, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PLAIN = AuthorizerSettings(allow_if_none=False)


def binding(permission: PermissionType, principal: str = "User:bob", resource: ResourcePattern = ORDERS) -> AclBinding:
    return AclBinding(resource, AccessRule(principal, "*", Operation.WRITE, permission))


def asked(*rules: AclBinding, settings: AuthorizerSettings = PLAIN) -> Explanation:
    return explain(list(rules), settings, "User:bob", "10.0.0.1", Operation.WRITE, ORDERS)


def test_every_denying_rule_has_to_go_and_an_allowing_one_to_come() -> None:
    everybody = binding(PermissionType.DENY, "User:*", ORDERS._replace(name="ord", pattern=PatternType.PREFIXED))
    found = asked(binding(PermissionType.DENY), everybody)
    assert not found.allowed
    assert found.rule == binding(PermissionType.DENY)
    assert found.changes == [
        "To allow it: ottla acl remove deny User:bob write topic orders",
        "To allow it: ottla acl remove deny 'User:*' write topic --prefix ord",
        "To allow it: ottla acl grant producer bob --topic orders",
        "Or that alone: ottla acl add allow User:bob write topic orders",
    ]


def test_a_right_that_is_there_needs_only_the_removal() -> None:
    found = asked(binding(PermissionType.DENY), binding(PermissionType.ALLOW, "User:*"))
    assert found.changes == ["To allow it: ottla acl remove deny User:bob write topic orders"]


def test_all_allowing_rules_are_named_and_a_denial_is_enough() -> None:
    found = asked(binding(PermissionType.ALLOW), binding(PermissionType.ALLOW, "User:*"))
    assert found.allowed
    assert found.changes == [
        "To refuse it: ottla acl remove allow User:bob write topic orders",
        "To refuse it: ottla acl remove allow 'User:*' write topic orders",
        "Or: ottla acl add deny User:bob write topic orders",
    ]


def test_a_super_user_is_one_whatever_the_rules() -> None:
    found = asked(binding(PermissionType.DENY), settings=AuthorizerSettings(frozenset({"User:bob"}), False))
    assert found.allowed
    assert "super.users" in found.reason


def test_what_no_rule_mentions_is_decided_by_a_setting() -> None:
    assert asked(settings=AuthorizerSettings(allow_if_none=True)).allowed
    assert asked().reason.endswith("is not set")
    assert asked(settings=AuthorizerSettings(problem=HIDDEN)).reason.endswith("would decide")


def test_settings_of_brokers_that_differ() -> None:
    one: dict[str, str | None] = {"super.users": "User:a; User:b", "allow.everyone.if.no.acl.found": "true"}
    two: dict[str, str | None] = {"super.users": "User:b", "authorizer.class.name": "our-rules"}
    assert shared([one, two]) == AuthorizerSettings(frozenset({"User:b"}), False, "our-rules")
    assert shared([one, {"super.users": None}]).problem == HIDDEN
    assert shared([{}]).are_known
