"""Handlers are bound to parts that the broker has."""

from dataclasses import fields
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.server.binding import PARTS, bind, parts_of
from ottla.server.context import Services
from ottla.server.routing import CLUSTER_ROUTES, OWN_ROUTES, ROUTES, Route

EVERY_ROUTE = {**ROUTES, **CLUSTER_ROUTES, **OWN_ROUTES}
NAMES = {field.name for field in fields(Services)} | {"registered_brokers", "membership"}


@pytest.mark.parametrize("route", EVERY_ROUTE.values(), ids=lambda route: route.api_key.name)
def test_every_handler_names_parts_that_there_are(route: Route) -> None:
    module: Any = import_module(route.handler_module)
    named = parts_of(module)
    if PARTS in named:
        named = [name for name in named if name != PARTS] + [field.name for field in fields(module.Parts)]
    assert set(named) <= NAMES


def test_parts_come_before_the_request() -> None:
    def handle(metadata: str, request: int, context: int) -> tuple[str, int, int]:
        return metadata, request, context

    services: Any = SimpleNamespace(metadata="image", replicas="unused")
    bound = bind(SimpleNamespace(handle=handle), services)  # type: ignore[arg-type]
    assert bound(1, 2) == ("image", 1, 2)  # type: ignore[arg-type]


def test_an_unknown_part_is_named() -> None:
    def handle(unheard_of: str, request: int, context: int) -> None: ...

    with pytest.raises(AttributeError, match="unheard_of"):
        bind(SimpleNamespace(handle=handle), SimpleNamespace())  # type: ignore[arg-type]
