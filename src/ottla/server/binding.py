"""Binds a handler to the parts of the broker that it uses.

A handler names its parts, then takes the request and its context (`request`, `context`):

    def handle(groups: "GroupCoordinator", request: HeartbeatRequest, context: RequestContext) -> ...
    def handle(parts: Parts, request: ProduceRequest, context: RequestContext) -> ...

The first form is for a few parts, each by its name in `Services`. In the second, `Parts` is a dataclass of the module
whose fields have these names. Binding happens once, at the first request of an API; a request then costs what a call
with one more argument costs (ADR 37).
"""

from dataclasses import fields
from functools import partial
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.server.context import Services
    from ottla.server.controller_services import ControllerServices
    from ottla.server.routing import Handler

REQUEST: Final = "request"
PARTS: Final = "parts"


def parts_of(module: ModuleType) -> list[str]:
    """The names of the parts that come before the request in the signature of a handler."""
    names = list(signature(module.handle).parameters)
    return names[: names.index(REQUEST)]


def bind(module: ModuleType, services: "Services | ControllerServices") -> "Handler":
    """The handler of a module, as a function of a request and its context. AttributeError for an unknown part."""
    parts: list[Any] = [
        module.Parts(**{field.name: getattr(services, field.name) for field in fields(module.Parts)})
        if name == PARTS
        else getattr(services, name)
        for name in parts_of(module)
    ]
    return partial(module.handle, *parts) if parts else module.handle
