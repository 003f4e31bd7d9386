"""How far sources are behind, and since when they are idle, for the REST API.

The lag is asked of the source when somebody asks for it, from the stored position: so it is also that of a connector
that is paused or has failed, whose lag grows.
"""

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.api import Source
from ottla.connect.errors import ConnectError, Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.records import Part, Position, SourceLag
from ottla.connect.runtime.connector_config import parsed, with_defaults
from ottla.connect.runtime.plugins import connector_class
from ottla.connect.runtime.task import BasicContext, WorkerEnvironment, sentence_of
from ottla.connect.runtime.threads import in_thread

_ANSWER_S: Final = 15.0
"""For all parts together."""
_IDLE_MS: Final = 10_000
"""After so long without a change a source is called idle."""


def lag(name: str, config: Mapping[str, str], environment: WorkerEnvironment) -> list[dict[str, Any]]:
    """`{"partition", "position", "end", "lag", "unit", "error"}` for each part with a stored position.

    `lag` None: there is no log, or `error` has the reason. A source that does not answer is no error of the request.
    """
    places = environment.positions.all_of(name)
    if not places:
        return []
    try:
        config = environment.secrets.resolve(config)
        connector = connector_class(config.get("connector.class"), environment.permissions)
        if not issubclass(connector, Source):
            return []
        config = with_defaults(connector, config)
        settings = parsed(connector.settings_model, config)
        environment.secrets.remember_passwords(settings)
        context = BasicContext(TaskId(name, -1), environment.client("admin", config))
    except ConnectError as trouble:
        return [_row({}, None, environment.secrets.clean(sentence_of(trouble)))]

    def measured(part: Part, position: Position) -> dict[str, Any] | None:
        try:
            found = connector.lag(settings, part, position, context)
        except Exception as trouble:  # a plugin's: the other parts have their answers
            return _row(part, None, environment.secrets.clean(sentence_of(trouble)))
        return None if found is None else _row(part, found, None)

    asked = in_thread(f"connect lag {name}", lambda: [measured(part, position) for part, position in places])
    try:
        return [row for row in asked.result(_ANSWER_S) if row is not None]
    except TimeoutError:
        context.stopped.set()
        late = Retriable(f"the source has not answered within {_ANSWER_S:.0f} s")
        return [_row(part, None, str(late)) for part, _ in places]


def _row(part: Part, found: SourceLag | None, error: str | None) -> dict[str, Any]:
    return {
        "partition": dict(part),
        "position": None if found is None else found.position,
        "end": None if found is None else found.end,
        "lag": None if found is None else found.bytes,
        "unit": None if found is None or found.bytes is None else "bytes",
        "error": error,
    }


def delivery(reported: Mapping[str, Any] | None, now_ms: int) -> dict[str, int | None] | None:
    """What a task's status has of its last delivery, with `idle_since`; None for a sink, or a worker of before.

    `idle_since` is None for ten seconds after a delivery; a task that has delivered nothing is idle since it began.
    """
    if reported is None:
        return None
    began, delivered = reported.get("started_at"), reported.get("delivered_at")
    since = began if delivered is None else delivered
    is_idle = since is not None and (delivered is None or now_ms - delivered >= _IDLE_MS)
    return {
        "delivered_at": delivered,
        "changed_at": reported.get("changed_at"),
        "idle_since": since if is_idle else None,
    }
