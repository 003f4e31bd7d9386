"""What workers of connectors answer, as pages show it: failed first, and without secrets. PURE."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.connect.rest.redaction import HIDDEN, redacted

SHOWN_TRACE: Final = 20_000
"""Characters of a stack trace."""
FAILED: Final = "FAILED"
_RECOMMENDED: Final = 50
_OPEN_NAMES: Final = frozenset(("name", "connector.class", "tasks.max", "topics", "topics.regex"))
"""Shown even if the worker does not say which settings of the connector are passwords."""

Names = frozenset[str] | None


class Task(NamedTuple):
    """A task; `reason` is the first line of its trace."""

    number: int
    state: str
    worker: str
    reason: str
    trace: str


class Connector(NamedTuple):
    """A connector and its tasks, the failed ones first."""

    name: str
    kind: str
    plugin: str
    state: str
    worker: str
    reason: str
    trace: str
    tasks: list[Task]

    @property
    def failed(self) -> int:
        """How many of its tasks have failed."""
        return sum(task.state == FAILED for task in self.tasks)

    @property
    def has_failed(self) -> bool:
        """Whether it or one of its tasks has."""
        return self.state == FAILED or self.failed > 0


class Kept(NamedTuple):
    """A configuration with its secrets, and the names of those that are passwords by their definition."""

    config: dict[str, str]
    names: Names


class Info(NamedTuple):
    """A setting as the worker has validated it."""

    name: str
    kind: str
    value: str | None
    default: str | None
    is_required: bool
    documentation: str
    recommended: list[str]
    errors: list[str]


class Infos(NamedTuple):
    """A validated configuration: settings with errors, those that are given, and all others."""

    errors: int
    wrong: list[Info]
    given: list[Info]
    others: list[Info]


def connector_rows(answer: Mapping[str, Any]) -> list[Connector]:
    """The connectors of `GET /connectors?expand=status&expand=info`, those that have failed first.

    Raises KeyError, TypeError or AttributeError for an answer that has another shape.
    """
    found = []
    for name, each in answer.items():
        status, info = each["status"], each["info"]
        own = status["connector"]
        tasks = [_task(task) for task in status["tasks"]]
        trace = _clean(own.get("trace"))
        found.append(
            Connector(
                name,
                str(status.get("type") or info.get("type") or ""),
                str(info["config"].get("connector.class", "")),
                str(own["state"]),
                str(own.get("worker_id", "")),
                _first_line(trace),
                trace,
                sorted(tasks, key=lambda task: (task.state != FAILED, task.number)),
            )
        )
    return sorted(found, key=lambda each: (not each.has_failed, each.name))


def _task(task: Mapping[str, Any]) -> Task:
    trace = _clean(task.get("trace"))
    return Task(int(task["id"]), str(task["state"]), str(task.get("worker_id", "")), _first_line(trace), trace)


def _clean(trace: object) -> str:
    return str(redacted(str(trace or "")[:SHOWN_TRACE], lambda _: (), lambda text: text))


def _first_line(trace: str) -> str:
    return trace.split("\n", 1)[0].strip()


def masked(config: Mapping[str, str], names: Collection[str] | None) -> tuple[dict[str, str], frozenset[str]]:
    """A configuration without secrets, and the settings that are hidden or changed for that.

    `names` are passwords by the connector's definition; None: they are not known, and then little is shown.
    """
    shown = redacted(dict(config), lambda _: names or (), lambda text: text)
    if names is None:
        shown = {name: value if name in _OPEN_NAMES else HIDDEN for name, value in shown.items()}
    elif "connector.class" not in config:
        shown = {name: HIDDEN if name in names else value for name, value in shown.items()}
    return shown, frozenset(name for name, value in shown.items() if value != config[name])


def restored(given: Mapping[str, str], kept: Kept) -> dict[str, str]:
    """A configuration from a form, with the secrets that the form did not show.

    A value that stands as it was shown is meant to stay as it is. Raises ValueError for a hidden value of a setting
    that has none.
    """
    shown, hidden = masked(kept.config, kept.names)
    found = {
        name: kept.config[name] if name in hidden and value == shown[name] else value for name, value in given.items()
    }
    left = next((name for name, value in found.items() if value == HIDDEN), None)
    if left is not None:
        raise ValueError(f"{left} is {HIDDEN}, and the connector has no such setting: give it a value")
    return found


def validated(answer: Mapping[str, Any], config: Mapping[str, str]) -> Infos:
    """The answer of a validation. Raises KeyError, TypeError or AttributeError for one of another shape."""
    names = frozenset(
        str(each["definition"]["name"]) for each in answer["configs"] if each["definition"]["type"] == "PASSWORD"
    )
    _, hidden = masked({**dict.fromkeys(names, "x"), **config}, names)
    secrets = [config[name] for name in hidden if config.get(name)]
    infos = [_info(each, hidden, secrets) for each in answer["configs"]]
    return Infos(
        int(answer["error_count"]),
        [each for each in infos if each.errors],
        [each for each in infos if not each.errors and each.name in config],
        [each for each in infos if not each.errors and each.name not in config],
    )


def _info(each: Mapping[str, Any], hidden: Collection[str], secrets: Sequence[str]) -> Info:
    defined, value = each["definition"], each["value"]
    name, text, default = str(defined["name"]), value.get("value"), defined.get("default_value")
    is_secret = name in hidden
    return Info(
        name,
        str(defined["type"]),
        None if text is None else HIDDEN if is_secret else str(text),
        None if default is None or is_secret else str(default),
        bool(defined.get("required")),
        str(defined.get("documentation") or ""),
        [str(choice) for choice in value.get("recommended_values") or ()][:_RECOMMENDED],
        [_without(str(error), secrets) for error in value.get("errors") or ()],
    )


def _without(text: str, secrets: Sequence[str]) -> str:
    """A text in which a worker may have quoted a secret."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return str(redacted(text, lambda _: (), lambda clean: clean))


def parsed(text: str) -> dict[str, str]:
    """A configuration as it is typed: a JSON object, or lines `name=value`. Raises ValueError with a sentence."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"this is no JSON: {problem}") from None
        inner = found.get("config")
        chosen = inner if isinstance(inner, dict) else found
        return {str(name): _text(value) for name, value in chosen.items() if value is not None}
    config = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            name, equals, value = stripped.partition("=")
            if not equals or not name.strip():
                raise ValueError(f"line {number} is not name=value")
            config[name.strip()] = value.strip()
    return config


def written(config: Mapping[str, str]) -> str:
    """A configuration as it is edited: lines `name=value`, or JSON where a value has several lines."""
    if any(not value.isprintable() or value != value.strip() for value in config.values()):
        return json.dumps(dict(sorted(config.items())), indent=2, ensure_ascii=False)
    return "".join(f"{name}={value}\n" for name, value in sorted(config.items()))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)
