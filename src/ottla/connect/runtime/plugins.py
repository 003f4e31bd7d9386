"""The available connectors: Ottla's, and those that other packages register as entry points.

`connector.class` names one by its entry point (`postgres`), by its dotted name (`package.module.Class`), by the class's
name alone, or by an alias of it, such as that of the Java connector with the same settings.
"""

import difflib
import functools
import importlib
import logging
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Final

from ottla.connect.api import Sink, Source
from ottla.connect.errors import ConfigError
from ottla.connect.permissions import Permissions, refusal
from ottla.connect.settings import Settings

GROUP: Final = "ottla.connectors"
"""The group of entry points."""

UNDEFINED: Final = "undefined"
"""The version of what has none; Kafka Connect leaves it out of its answers."""

log = logging.getLogger(__name__)

ConnectorClass = type[Source[Any]] | type[Sink[Any]]


_NOTHING: Final = Permissions({})
_LOADED: Final[dict[str, ConnectorClass | None]] = {}
_LOADING: Final = threading.RLock()
"""Tasks, planners and requests look for connectors at the same time. Python 3.11 cannot parse in several threads, which
hooks of imports may do (gh-106905).
"""


@functools.cache
def _points() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda each: each.name)}


def _loaded(name: str) -> ConnectorClass | None:
    """The class of an entry point; None if it cannot be imported, which is tried again unless a library is missing."""
    with _LOADING:
        if name not in _LOADED:
            point = _points()[name]
            try:
                _LOADED[name] = _connector(name, point)
            except Exception as failure:
                log.warning("connector %s (%s) cannot be loaded: %s", name, point.value, failure)
                if not isinstance(failure, ImportError):
                    return None
                _LOADED[name] = None
        return _LOADED[name]


def _connector(name: str, point: EntryPoint) -> ConnectorClass | None:
    loaded = point.load()
    if not _is_connector(loaded):
        log.warning("%s (%s) is no subclass of Source or Sink", name, point.value)
        return None
    connector: ConnectorClass = loaded
    return connector


def installed() -> Mapping[str, ConnectorClass]:
    """Connectors by the names of their entry points; one that cannot be imported is left out, with a warning.

    Imports all of them, and the libraries of their databases: to find one, `connector_class` is quicker.
    """
    loaded = {name: _loaded(name) for name in _points()}
    return {name: connector for name, connector in loaded.items() if connector is not None}


def connector_class(name: str | None, permissions: Permissions = _NOTHING) -> ConnectorClass:
    """The class that `connector.class` means: one of an entry point, or of a module that may be imported.

    Raises ConfigError.
    """
    if not name:
        raise ConfigError("connector.class is missing: it names the connector", "connector.class")
    points = {point.value.replace(":", "."): short for short, point in _points().items()}
    short = name if name in _points() else points.get(name)
    found = None if short is None else _loaded(short)
    module, _, attribute = name.rpartition(".")
    allowed = bool(module) and permissions.may_import(module)
    if found is None and allowed:
        found = _imported(name, module, attribute)
    if found is None:
        found = _alias(name)
    if found is not None:
        return found
    if name in _points():
        raise ConfigError(
            f"connector {name} ({_points()[name].value}) cannot be loaded; see the worker's log", "connector.class"
        )
    near = difflib.get_close_matches(name, list(_points()), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(_points()) or 'none'}"
    if module and not near and not allowed:
        hint += f"; {refusal(module)}"
    elif module and not near:
        hint += f", and no module {module} with it in plugin.path, on PYTHONPATH, or installed"
    raise ConfigError(f"Failed to find any class that implements Connector and which name matches {name}{hint}", None)


def check_paths(connector: ConnectorClass, settings: Settings, permissions: Permissions) -> None:
    """Raises ConfigError if a connector is to read or write files of this machine that it may not."""
    for name, paths in connector.local_paths(settings).items():
        permissions.check_files(paths, name)


def _alias(name: str) -> ConnectorClass | None:
    """The connector with that class's name, or alias. Those that are loaded are looked at first, then those whose entry
    point is the likest: each costs the import of its database's library.
    """

    def in_common(point: str) -> int:
        return difflib.SequenceMatcher(None, point, name.lower()).find_longest_match().size

    def candidates() -> Iterator[str]:
        yield from list(_LOADED)
        yield from sorted(_points().keys() - _LOADED.keys(), key=in_common, reverse=True)

    for found in map(_loaded, candidates()):
        if found is not None and name in (found.__name__, *found.aliases):
            return found
    return None


def _imported(name: str, module: str, attribute: str) -> ConnectorClass | None:
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as failure:
        if failure.name is not None and (module == failure.name or module.startswith(f"{failure.name}.")):
            return None
        raise ConfigError(
            f"{name} needs the package {failure.name}, which is not installed", "connector.class"
        ) from None
    except Exception as failure:  # of whatever kind: the module is its author's
        raise ConfigError(
            f"{name} cannot be imported: {type(failure).__name__}: {failure}", "connector.class"
        ) from None
    if found is None or not _is_connector(found):
        return None
    connector: ConnectorClass = found
    return connector


def _is_connector(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, Source | Sink)


def kind_of(connector: ConnectorClass) -> str:
    """`source` or `sink`."""
    return "source" if issubclass(connector, Source) else "sink"


def dotted(connector: type) -> str:
    """The dotted name of a class."""
    return f"{connector.__module__}.{connector.__qualname__}"


def version_of(connector: ConnectorClass) -> str:
    """The connector's version, or that of the package that brings it; `undefined` if it has none."""
    if connector.version:
        return connector.version
    own = f"{connector.__module__}:{connector.__qualname__}"
    for point in _points().values():
        if point.value == own and point.dist is not None:  # whose name may be another than its module's
            return point.dist.version
    try:
        return version(connector.__module__.partition(".")[0])
    except PackageNotFoundError:
        return UNDEFINED


def listed() -> Iterator[dict[str, str]]:
    """The entries of `GET /connector-plugins`: sinks first, as in Kafka."""
    for kind in ("sink", "source"):
        for known in installed().values():
            if kind_of(known) == kind:
                version_text = version_of(known)
                versioned = {} if version_text == UNDEFINED else {"version": version_text}
                yield {"class": dotted(known), "type": kind, **versioned}
