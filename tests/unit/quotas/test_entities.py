"""Whose quotas are: paths as Kafka makes them, and there and back. tests/compat compares requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.commands import SetConfigs
from ottla.cluster.image import ResourceType, empty_image
from ottla.errors import InvalidRequest
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Node
from ottla.quotas.entities import Entity, check_address, checked_entity, checked_value, entity_of

NAMES = st.text(min_size=1, max_size=10).filter(lambda text: text.isprintable())


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (Entity(user="alice"), "/config/users/alice"),
        (Entity(user=""), "/config/users/<default>"),
        (Entity(user="<default>"), "/config/users/%3Cdefault%3E"),
        (Entity(user="CN=a b,O=c~*"), "/config/users/CN%3Da%20b%2CO%3Dc%7E%2A"),
        (Entity(client_id="app-1_x.y"), "/config/clients/app-1_x.y"),
        (Entity(client_id=""), "/config/clients/<default>"),
        (Entity("u/1", "c 2"), "/config/users/u%2F1/clients/c%202"),
        (Entity("", ""), "/config/users/<default>/clients/<default>"),
        (Entity(user=".."), "/config/users/%2E%2E"),
        (Entity(ip="::1"), "/config/ips/::1"),
        (Entity(ip=""), "/config/ips/<default>"),
    ],
)
def test_paths_are_those_of_kafka(entity: Entity, path: str) -> None:
    assert layout.config_path(*entity.resource) == path
    settings = layout.read_configs(path, None)
    assert settings is not None
    assert entity_of(settings.resource_type, settings.name) == entity


@given(st.one_of(st.none(), st.just(""), NAMES), st.one_of(st.just(""), NAMES))
def test_every_name_comes_back(user: str | None, client_id: str) -> None:
    entity = Entity(user, client_id)
    path = layout.config_path(*entity.resource)
    commands = [SetConfigs(*entity.resource, {"producer_byte_rate": "1"})]
    operations = layout.operations_for(commands, empty_image(""), {}, controller_epoch=0, now_ms=0, notify=True)
    made, notification = operations
    assert isinstance(made, Create)
    assert isinstance(notification, Create)
    assert notification.path == "/config/changes/config_change_"
    image = layout.read_image({path: Node(made.data, 0)})
    ((kind, name),) = image.configs
    assert entity_of(kind, name) == entity


def test_nothing_else_has_quotas() -> None:
    assert entity_of(ResourceType.TOPIC, "t") is None


def test_a_quota_that_would_be_nothing_is_refused() -> None:
    """Kafka takes a ten-millionth for a byte rate."""
    entity = checked_entity([("user", "u")])
    assert checked_value(entity, "producer_byte_rate", 5.0) == "5"
    assert checked_value(entity, "request_percentage", 0.5) == "0.5"
    with pytest.raises(InvalidRequest, match="fractional"):
        checked_value(entity, "producer_byte_rate", 1e-7)
    with pytest.raises(InvalidRequest, match="greater than 0"):
        checked_value(entity, "request_percentage", float("nan"))


def test_an_address_is_no_path() -> None:
    with pytest.raises(InvalidRequest, match="not a valid IP"):
        check_address("a/b", is_host=True)
