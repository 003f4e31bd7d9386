"""What `PUT /connector-plugins/NAME/config/validate` answers: every setting with its definition, value and errors."""

import logging
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.errors import ConfigError, ConnectError, Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.runtime.chain import check_chain
from ottla.connect.runtime.connector_config import default_text, is_secret, runtime_model, validated, with_defaults
from ottla.connect.runtime.new_topics import NewTopics
from ottla.connect.runtime.plugins import ConnectorClass, check_paths, connector_class, kind_of
from ottla.connect.runtime.task import BasicContext, WorkerEnvironment
from ottla.connect.runtime.threads import in_thread
from ottla.connect.settings import SettingFacts, Settings

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

log = logging.getLogger(__name__)

_GROUPLESS: Final = "Connector"
_CHECK_S: Final = 45.0


def definitions(model: type[Settings]) -> list[dict[str, Any]]:
    """Kafka's ConfigKeyInfo for each setting of a model, with the names of 4.3; `order_in_group` was `order` before."""
    counts: dict[str | None, int] = {}
    found = []
    for key, field in model.model_fields.items():
        facts = next((each for each in field.metadata if isinstance(each, SettingFacts)), SettingFacts())
        name = field.alias or key
        group = facts.group or _GROUPLESS
        counts[group] = counts.get(group, 0) + 1
        found.append(
            {
                "name": name,
                "type": _type_name(field.annotation),
                "required": field.is_required(),
                "default_value": default_text(_default(field)),
                "importance": facts.importance.upper(),
                "documentation": field.description or "",
                "group": group,
                "order_in_group": counts[group],
                "width": "MEDIUM",
                "display_name": facts.display or name,
                "dependents": [],
            }
        )
    return found


def _default(field: "FieldInfo") -> Any:
    """A setting's default. pydantic's `get_default` parses the signature of a factory such as `list` each time, which
    Python before 3.11.8 cannot do in several threads at once (gh-106905).
    """
    factory: Any = field.default_factory
    return field.default if factory is None else factory()


def all_definitions(connector: ConnectorClass) -> list[dict[str, Any]]:
    """The definitions of the runtime, then the connector's own."""
    return [*definitions(runtime_model(connector)), *definitions(connector.settings_model)]


def validate(config: Mapping[str, str], environment: WorkerEnvironment) -> dict[str, Any]:
    """Kafka's ConfigInfos for a configuration; the connector itself has been asked as well if its settings are right.

    Raises ConfigError for a connector that is not there.
    """
    connector = connector_class(config.get("connector.class"), environment.permissions)
    problems: dict[str, list[str]] = {}
    resolved = dict(config)
    try:
        resolved = environment.secrets.resolve(config)
    except ConfigError as wrong:
        problems.setdefault(wrong.setting or "", []).append(str(wrong))
    full = with_defaults(connector, resolved)
    environment.secrets.remember_named(full)
    runtime, wrong_runtime = validated(runtime_model(connector), full)
    settings, wrong_settings = validated(connector.settings_model, full)
    for each in (wrong_runtime, wrong_settings, _topics_problems(connector, full)):
        for name, texts in each.items():
            problems.setdefault(name, []).extend(texts)
    if runtime is not None and not problems:
        _ask(problems, lambda: check_chain(full, environment.converters, runtime, log))  # type: ignore[arg-type] # of RuntimeSettings
    if settings is not None:
        environment.secrets.remember_passwords(settings)
    if settings is not None:
        known = settings
        _ask(problems, lambda: check_paths(connector, known, environment.permissions))
        _ask(problems, lambda: _check_clients(full, environment))
    if settings is not None and not problems:
        client = environment.client("admin", full)
        context = BasicContext(TaskId(config.get("name", ""), -1), client, environment.permissions.targets)
        _ask(problems, lambda: _checked(connector, settings, context))
    clean = environment.secrets.clean
    return _infos(connector, config, {name: [clean(text) for text in texts] for name, texts in problems.items()})


def _check_clients(config: Mapping[str, str], environment: WorkerEnvironment) -> None:
    for kind in ("producer", "consumer", "admin"):
        environment.client(kind, config)


def _checked(connector: ConnectorClass, settings: Settings, context: BasicContext) -> None:
    """Let the connector check; the requester gets an answer even if that never ends."""
    looked = in_thread(f"connect check {context.connector}", lambda: connector.check(settings, context))
    try:
        looked.result(_CHECK_S)
    except TimeoutError:
        if looked.done():  # one of the connector's own
            raise
        context.stopped.set()
        raise Retriable(f"the connector has looked at these settings for {_CHECK_S:.0f} s without an answer") from None


def _ask(problems: dict[str, list[str]], question: typing.Callable[[], None]) -> None:
    try:
        question()
    except ConfigError as wrong:
        problems.setdefault(wrong.setting or "", []).append(str(wrong))
    except ConnectError as trouble:
        problems.setdefault("", []).append(str(trouble))
    except Exception as failure:
        log.exception("a connector failed while its configuration was checked")
        problems.setdefault("", []).append(f"the check failed: {type(failure).__name__}: {failure}")


def _topics_problems(connector: ConnectorClass, config: Mapping[str, str]) -> dict[str, list[str]]:
    if kind_of(connector) == "source":
        try:
            NewTopics.of(config)
        except ConfigError as wrong:
            return {wrong.setting or "": [str(wrong)]}
        return {}
    topics, pattern = bool(config.get("topics", "").strip()), bool(config.get("topics.regex", "").strip())
    if topics and pattern:
        return {"topics": ["topics and topics.regex are mutually exclusive options, but both are set."]}
    if not topics and not pattern:
        return {"topics": ["Must configure one of topics or topics.regex"]}
    dead = config.get("errors.deadletterqueue.topic.name", "").strip()
    if dead and dead in [each.strip() for each in config.get("topics", "").split(",")]:
        return {"topics": [f"The dead-letter topic {dead} cannot be one of the topics that are read"]}
    return {}


def _infos(connector: ConnectorClass, config: Mapping[str, str], problems: Mapping[str, list[str]]) -> dict[str, Any]:
    defined = all_definitions(connector)
    names = {each["name"] for each in defined}
    left = {name: texts for name, texts in problems.items() if name not in names}
    if left:  # about several settings, or about one of a transform or converter: shown where consoles look
        first = "connector.class"
        extra = [text for texts in left.values() for text in texts]
        problems = {**problems, first: [*problems.get(first, []), *extra]}
    configs = []
    for each in defined:
        name = each["name"]
        model = connector.settings_model
        value = config.get(name, each["default_value"])
        hidden = is_secret(model, name) and value is not None and not value.startswith("${")
        facts = _facts(connector, name)
        configs.append(
            {
                "definition": each,
                "value": {
                    "name": name,
                    "value": "[hidden]" if hidden else value,
                    "recommended_values": facts.choices,
                    "errors": list(problems.get(name, [])),
                    "visible": True,
                },
            }
        )
    groups = list(dict.fromkeys(each["group"] for each in defined))
    count = sum(bool(each["value"]["errors"]) for each in configs)
    return {"name": config.get("connector.class"), "error_count": count, "groups": groups, "configs": configs}


def _facts(connector: ConnectorClass, name: str) -> SettingFacts:
    for model in (runtime_model(connector), connector.settings_model):
        for key, field in model.model_fields.items():
            if name in (field.alias, key):
                return next((each for each in field.metadata if isinstance(each, SettingFacts)), SettingFacts())
    return SettingFacts()


def _type_name(annotation: Any) -> str:
    """Kafka's ConfigDef.Type for a type in Python."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _type_name(next(each for each in typing.get_args(annotation) if each is not types.NoneType))
    if origin is list or annotation is list:
        return "LIST"
    if annotation is bool:
        return "BOOLEAN"
    if annotation is int:
        return "LONG"
    if annotation is float:
        return "DOUBLE"
    return "PASSWORD" if getattr(annotation, "__name__", "") == "SecretStr" else "STRING"
