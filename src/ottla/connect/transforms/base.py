"""The chain of transforms of a connector: which, in what order, on which records."""

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.errors import BadRecord, ConfigError, ConnectError
from ottla.connect.patterns import compiled
from ottla.connect.permissions import Permissions, refusal
from ottla.connect.records import Record

Transform = Callable[[Any], Any]
"""A record to a changed one, or to None: dropped. Raises BadRecord."""

Predicate = Callable[[Any], bool]


class Options:
    """The settings of one transform; names what is missing or wrong as users wrote it. Raises ConfigError."""

    def __init__(self, prefix: str, settings: Mapping[str, str]) -> None:
        self.prefix, self.settings = prefix, settings

    def text(self, name: str, default: str | None = None) -> str:
        """A setting that must be there, unless it has a default."""
        value = self.settings.get(name, default)
        if value is None:
            raise ConfigError(f"{self.prefix}{name} is missing", self.prefix + name)
        return value

    def optional(self, name: str) -> str | None:
        """A setting, or None."""
        return self.settings.get(name)

    def flag(self, name: str, *, default: bool) -> bool:
        """true or false."""
        value = self.settings.get(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise ConfigError(f"{self.prefix}{name} is true or false, not {value!r}", self.prefix + name)
        return value == "true"

    def items(self, name: str) -> list[str]:
        """A list by commas; empty if it is not there."""
        return [part for part in (piece.strip() for piece in self.settings.get(name, "").split(",")) if part]

    def pattern(self, name: str) -> Any:
        """A regular expression, in Java's spelling of named groups."""
        try:
            return compiled(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", self.text(name)))
        except re.error as wrong:
            raise self.wrong(name, f"is no regular expression: {wrong}") from None

    def wrong(self, name: str, what: str) -> ConfigError:
        """The error about one setting."""
        return ConfigError(f"{self.prefix}{name} {what}", self.prefix + name)


class Step:
    """One transform, and the predicate that selects its records."""

    def __init__(self, class_name: str, transform: Transform, predicate: Predicate | None, *, negate: bool) -> None:
        self.class_name = class_name
        self._transform, self._predicate, self._negate = transform, predicate, negate

    def __call__(self, record: Any) -> Any:
        """The record, changed or as it was; None: dropped."""
        try:
            if self._predicate is not None and self._predicate(record) == self._negate:
                return record
            return self._transform(record)
        except ConnectError:
            raise
        except Exception as failure:
            raise BadRecord(f"{self.class_name} failed: {type(failure).__name__}: {failure}") from failure


def steps(config: Mapping[str, str], permissions: Permissions) -> list[Step]:
    """The chain that `transforms` and `predicates` of a configuration describe. Raises ConfigError."""
    predicates = {name: _predicate(name, config, permissions) for name in _names(config, "predicates")}
    return [_step(name, config, predicates, permissions) for name in _names(config, "transforms")]


def _names(config: Mapping[str, str], setting: str) -> list[str]:
    names = [part for part in (piece.strip() for piece in config.get(setting, "").split(",")) if part]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{setting} names {twice!r} twice", setting)
    return names


def _options(prefix: str, config: Mapping[str, str]) -> Options:
    return Options(prefix, {n.removeprefix(prefix): value for n, value in config.items() if n.startswith(prefix)})


def _step(name: str, config: Mapping[str, str], predicates: Mapping[str, Predicate], permissions: Permissions) -> Step:
    options = _options(f"transforms.{name}.", config)
    class_name = options.text("type")
    named = options.optional("predicate")
    if named is not None and named not in predicates:
        raise options.wrong("predicate", f"names {named!r}, which `predicates` does not list")
    predicate = None if named is None else predicates[named]
    negate = options.flag("negate", default=False)
    return Step(class_name, _transform(class_name, options, permissions), predicate, negate=negate)


_PACKAGE: Final = "org.apache.kafka.connect.transforms."
_SIDES: Final = ("Key", "Value")


def _transform(class_name: str, options: Options, permissions: Permissions) -> Transform:
    from ottla.connect.transforms.catalog import TRANSFORMS

    plain, dollar, side = class_name.removeprefix(_PACKAGE).partition("$")
    make = TRANSFORMS.get(plain)
    if make is not None:
        if make.sided and side not in _SIDES:
            raise options.wrong("type", f"is {plain}$Key or {plain}$Value, not {class_name!r}")
        if not make.sided and dollar:
            raise options.wrong("type", f"is {plain}, without {dollar}{side}")
        return make.build(options, side)
    function = _python_function(class_name, options, TRANSFORMS, permissions)

    def checked(record: Record) -> Any:
        changed = function(record)
        if changed is not None and not isinstance(changed, Record):
            raise BadRecord(f"{class_name} returned a {type(changed).__name__}, which is neither a record nor None")
        return changed

    return checked


def _predicate(name: str, config: Mapping[str, str], permissions: Permissions) -> Predicate:
    from ottla.connect.transforms.catalog import PREDICATES

    options = _options(f"predicates.{name}.", config)
    class_name = options.text("type")
    make = PREDICATES.get(class_name.removeprefix(f"{_PACKAGE}predicates."))
    if make is not None:
        return make(options)
    return _python_function(class_name, options, PREDICATES, permissions)


def _python_function(
    name: str, options: Options, known: Mapping[str, object], permissions: Permissions
) -> Callable[[Any], Any]:
    """`package.module:function`, called with the record, and with the other settings as keywords if there are any."""
    module, colon, attribute = name.partition(":")
    if not colon:
        import difflib

        near = difflib.get_close_matches(name.rpartition(".")[2].partition("$")[0], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        raise options.wrong("type", f"is {name!r}, which is neither known nor module:function; {hint}")
    if not permissions.may_import(module):
        raise options.wrong("type", f"is {name!r}: {refusal(module)}")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as failure:
        raise options.wrong("type", f"is {name!r}, which cannot be imported: {failure}") from None
    if not callable(function):
        raise options.wrong("type", f"is {name!r}, which cannot be called")
    home = getattr(function, "__module__", None) or module
    if home != module and not permissions.may_import(home):  # what a module itself imports is not its own
        raise options.wrong("type", f"is {name!r}, which is {home}'s: {refusal(home)}")
    own = ("type", "predicate", "negate")
    keywords = {key.replace(".", "_"): text for key, text in options.settings.items() if key not in own}

    def call(record: Record) -> Any:
        return function(record, **keywords)

    return call
