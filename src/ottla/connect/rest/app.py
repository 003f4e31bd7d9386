"""Kafka Connect's REST API: paths, shapes, error bodies; and the passing on of what another worker has to do.

    CORS --> guard.py (web pages) --> authentication.py (logins, roles) --> a handler, in a thread

Ottla's own beside it: `/connectors/NAME/progress`, `/connectors/NAME/lag`, `/connectors/NAME/logs`.
Source: `ConnectorsResource`, `ConnectorPluginsResource`, `LoggingResource`, `RootResource` of Kafka 4.3.
"""

import asyncio
import functools
import http.client
import json
import logging
import urllib.parse
from collections.abc import Callable, Collection
from importlib.metadata import version
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.connect.converters.base import CONVERTERS
from ottla.connect.converters.headers import SIMPLE
from ottla.connect.converters.json_converter import json_text
from ottla.connect.errors import ConnectError
from ottla.connect.herder.state import Target
from ottla.connect.rest.authentication import ANYBODY, CALLER, READS, Caller, Logins, logged_in
from ottla.connect.rest.forwarding import Forwarding
from ottla.connect.rest.guard import Refusal, guarded
from ottla.connect.rest.operations import Elsewhere, Operations, Refused
from ottla.connect.rest.redaction import redacted
from ottla.connect.runtime import loggers
from ottla.connect.runtime.connector_log import ConnectorLog
from ottla.connect.runtime.plugins import listed
from ottla.connect.runtime.threads import in_thread
from ottla.connect.runtime.worker import Worker
from ottla.connect.transforms.catalog import predicate_names, transform_names

log = logging.getLogger(__name__)

_LARGEST_BODY: Final = 8 << 20
"""Bytes. A record of the topic of configurations has a megabyte by default."""
_MOST_DIGITS: Final = 9
_BODY: Final = "ottla.body"
"""The key of a request's body in its scope, once it has been read."""
Handler = Callable[[Operations, Request, Any], "Answer"]


class Answer:
    """A status, and a body: anything JSON holds; None: nothing at all."""

    def __init__(self, body: Any = None, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.body, self.status, self.headers = body, status, headers or {}


def application(
    worker: Worker,
    lines: ConnectorLog,
    *,
    origins: Collection[str],
    methods: Collection[str],
    is_local: bool,
    logins: Logins | None,
    forwarding: Forwarding,
) -> ASGIApp:
    """The API of one worker.

    origins: web pages that may use it, by these methods. is_local: it listens on a loopback address (see `guard`).
    logins: None if it asks for none.
    """
    operations = Operations(worker)
    serve = functools.partial(_served, operations, forwarding)
    routes = [
        Route("/", functools.partial(serve, lambda *_: _root(worker)), methods=["GET"]),
        Route("/health", functools.partial(serve, lambda *_: _health(worker)), methods=["GET"]),
        Route(
            "/connectors/{name}/logs",
            functools.partial(serve, lambda _, request, __: _logs(lines, request)),
            methods=["GET"],
        ),
    ]
    for path, method, handler in _ROUTES:
        routes.append(Route(path, functools.partial(serve, handler), methods=[method]))
    known = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})

    async def without_slash(scope: Scope, receive: Receive, send: Send) -> None:
        """As Kafka's: a slash at the end is none, and redirects none; one in a name is refused."""
        app: ASGIApp = known
        if scope["type"] == "http":
            if len(scope["path"]) > 1:
                scope["path"] = scope["path"].removesuffix("/")
            if b"%2f" in scope["raw_path"].lower():
                app = _error(400, "Ambiguous URI path separator: no name has a slash in it")
        await app(scope, receive, send)

    guard = guarded(logged_in(without_slash, _refusal, logins), _refusal, origins=origins, is_local=is_local)
    if not origins:
        return guard
    return CORSMiddleware(
        guard, allow_origins=origins, allow_methods=methods, allow_headers=["content-type", "authorization"]
    )


async def _served(operations: Operations, forwarding: Forwarding, handler: Handler, request: Request) -> Response:
    def error(status: int, message: str) -> Response:
        return _error(status, operations.clean(message))

    caller: Caller = request.scope.get(CALLER, ANYBODY)
    try:
        raw = b"" if request.method in READS else await _raw_body(request)  # nothing is read by a body
        request.scope[_BODY] = raw
        asked = in_thread("connect request", lambda: handler(operations, request, _body(raw)))
        answer = await asyncio.wrap_future(asked)
    except Refused as refused:
        return error(refused.status, str(refused))
    except Elsewhere as elsewhere:
        return await _forwarded(forwarding, request, elsewhere.worker)
    except ConnectError as failure:
        return error(500, str(failure))
    except Exception as failure:
        log.exception("a request could not be answered: %s %s", request.method, request.url.path)
        return error(500, f"{type(failure).__name__}: {failure}")
    if not caller.may_change:
        answer.body = redacted(answer.body, operations.password_names, operations.clean)
    return _response(answer)


def _response(answer: Answer) -> Response:
    if answer.body is None:
        return Response(status_code=answer.status, headers=answer.headers)
    return Response(json_text(answer.body), answer.status, answer.headers, "application/json")


def _error(status: int, message: str) -> Response:
    return _response(Answer({"error_code": status, "message": message}, status))


def _refusal(refused: Refusal) -> Response:
    answer = Answer({"error_code": refused.status, "message": str(refused)}, refused.status, dict(refused.headers))
    return _response(answer)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}")


def _body(raw: bytes) -> Any:
    """The JSON of a body, in a thread: megabytes of it take seconds."""
    if not raw:
        return None
    try:
        body = json.loads(raw)
        json_text(body).encode()  # half of a surrogate pair is in no topic
    except (ValueError, RecursionError) as wrong:
        raise Refused(400, f"Bad Request: the body is no JSON: {wrong}") from None
    return body


async def _raw_body(request: Request) -> bytes:
    too_large = Refused(413, f"HTTP 413 Content Too Large: a body has at most {_LARGEST_BODY >> 20} MiB")
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > _LARGEST_BODY:
        raise too_large
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > _LARGEST_BODY:
            raise too_large
    return bytes(received)


async def _forwarded(forwarding: Forwarding, request: Request, worker: str) -> Response:
    if request.query_params.get("forward") is not None:  # has been passed on already: the cluster is changing
        return _error(409, "Cannot complete request because of a conflicting operation (e.g. worker rebalance)")
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope["raw_path"].decode("latin-1")  # as it came: names may have any character
    target = f"{path}?{query}{'&' if query else ''}forward=true"
    passed = forwarding.request(
        worker, request.method, target, request.scope[_BODY], request.headers.get("authorization")
    )
    try:
        status, text = await asyncio.wrap_future(in_thread("connect forward", passed))
    except (OSError, http.client.HTTPException) as failure:
        return _error(500, f"IO Error trying to forward REST request to {worker}: {failure}")
    return Response(text, status, media_type="application/json" if text else None)


def _settings(body: Any, *, nulls: bool = False) -> dict[str, Any]:
    """A configuration from a body: strings, or what JSON has for them."""
    if not isinstance(body, dict):
        raise Refused(400, "The body is an object of settings")
    texts: dict[str, Any] = {}
    for name, value in body.items():
        if value is None:
            if not nulls:
                raise Refused(400, f"Null value can not be supplied as the configuration value: {name}")
            texts[name] = None
            continue
        if isinstance(value, dict | list):
            raise Refused(400, f"The setting {name} is a string, a number or a boolean")
        texts[name] = value if isinstance(value, str) else json_text(value)
    return texts


def _fields(body: Any, *known: str) -> dict[str, Any]:
    """An object that has these fields at most: one that is misspelt would be as if it were not there."""
    if not isinstance(body, dict):
        raise Refused(400, f"The body is an object with the fields {', '.join(known)}")
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        raise Refused(400, f'Unrecognized field "{unknown}": known are {", ".join(known)}')
    return body


def _flag(request: Request, name: str, *, default: bool = False) -> bool:
    return request.query_params.get(name, str(default)).lower() == "true"


def _number(request: Request) -> int:
    text = request.path_params["task"]
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise Refused(404, "HTTP 404 Not Found")
    return int(text)


# -- handlers --------------------------------------------------------------------------------------------------------


def _root(worker: Worker) -> Answer:
    return Answer({"version": version("ottla"), "commit": "ottla", "kafka_cluster_id": worker.cluster_id()})


def _health(worker: Worker) -> Answer:
    if not worker.ready.is_set():
        return Answer({"status": "starting", "message": "Worker is still starting up."}, 503)
    return Answer({"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."})


def _logs(lines: ConnectorLog, request: Request) -> Answer:
    count = request.query_params.get("lines", "100")
    if not count.isdecimal() or len(count) > _MOST_DIGITS:
        raise Refused(400, f"lines is how many, not {count!r}")
    return Answer(lines.of(request.path_params["name"], int(count)))


def _list(operations: Operations, request: Request, _body: Any) -> Answer:
    expand = request.query_params.getlist("expand")
    if not expand:
        return Answer(operations.names())
    known = {"status": operations.status, "info": operations.info}
    listed_all: dict[str, Any] = {}
    for name in operations.names():
        try:
            listed_all[name] = {kind: known[kind](name) for kind in expand if kind in known}
        except Refused:
            continue  # deleted meanwhile, or so new that it has no status
    return Answer(listed_all)


def _create(operations: Operations, _request: Request, body: Any) -> Answer:
    given = _fields(body, "name", "config", "initial_state")
    if isinstance(given.get("name"), dict | list):
        raise Refused(400, "The `name` is a string")
    name, state = str(given.get("name") or "").strip(), given.get("initial_state")
    made = operations.create(name, _settings(given.get("config")), None if state is None else str(state))
    return Answer(made, 201, _location(name))


def _put_config(operations: Operations, request: Request, body: Any) -> Answer:
    name = request.path_params["name"]
    created, info = operations.put_config(name, _settings(body))
    return Answer(info, 201, _location(name)) if created else Answer(info)


def _location(name: str) -> dict[str, str]:
    return {"Location": f"/connectors/{urllib.parse.quote(name, safe='')}"}


def _patch_config(operations: Operations, request: Request, body: Any) -> Answer:
    name = request.path_params["name"]
    operations.config(name)  # Kafka's looks for it before it looks at the body
    return Answer(operations.patch_config(name, _settings(body, nulls=True)))


def _delete(operations: Operations, request: Request, _body: Any) -> Answer:
    operations.delete(request.path_params["name"])
    return Answer(status=204)


def _restart(operations: Operations, request: Request, _body: Any) -> Answer:
    tasks, failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
    status = operations.restart(request.path_params["name"], include_tasks=tasks, only_failed=failed)
    return Answer(status, 202) if tasks or failed else Answer(status=204)


def _target(target: Target, status: int) -> Handler:
    def handle(operations: Operations, request: Request, _body: Any) -> Answer:
        operations.set_target(request.path_params["name"], target)
        return Answer(status=status)

    return handle


def _by_name(question: Callable[[Operations, str], Any]) -> Handler:
    return lambda operations, request, _body: Answer(question(operations, request.path_params["name"]))


def _task_status(operations: Operations, request: Request, _body: Any) -> Answer:
    return Answer(operations.task_status(request.path_params["name"], _number(request)))


def _restart_task(operations: Operations, request: Request, _body: Any) -> Answer:
    operations.restart_task(request.path_params["name"], _number(request))
    return Answer(status=204)


def _forget_topics(operations: Operations, request: Request, _body: Any) -> Answer:
    operations.forget_topics(request.path_params["name"])
    return Answer(status=202)


def _alter_offsets(operations: Operations, request: Request, body: Any) -> Answer:
    offsets = _fields(body or {}, "offsets").get("offsets")
    return Answer(operations.alter_offsets(request.path_params["name"], offsets))


def _plugins(_operations: Operations, request: Request, _body: Any) -> Answer:
    known = list(listed())
    if not _flag(request, "connectorsOnly", default=True):
        own = version("ottla")
        known += [{"class": name, "type": "transformation", "version": own} for name in transform_names()]
        known += [{"class": name, "type": "predicate", "version": own} for name in predicate_names()]
        known += [{"class": name, "type": "converter", "version": own} for name in CONVERTERS]
        known += [{"class": SIMPLE, "type": "header_converter", "version": own}]
    return Answer(known)


def _definitions(operations: Operations, request: Request, _body: Any) -> Answer:
    return Answer(operations.definitions(request.path_params["plugin"]))


def _validate(operations: Operations, request: Request, body: Any) -> Answer:
    return Answer(operations.validate(request.path_params["plugin"], _settings(body)))


def _loggers(_operations: Operations, _request: Request, _body: Any) -> Answer:
    return Answer(loggers.levels())


def _logger(_operations: Operations, request: Request, _body: Any) -> Answer:
    name = request.path_params["logger"]
    level = loggers.level(name)
    if level is None:
        raise Refused(404, f"Logger {name} not found.")
    return Answer(level)


def _set_logger(operations: Operations, request: Request, body: Any) -> Answer:
    level = body.get("level") if isinstance(body, dict) else None
    if level is None:
        raise Refused(400, "Desired 'level' parameter was not specified in request.")
    name = request.path_params["logger"]
    if not loggers.known_level(str(level)):
        raise Refused(404, f"invalid log level '{level}'.")
    if request.query_params.get("scope", "worker").lower() == "cluster":
        operations.set_cluster_level(name, str(level))
        return Answer(status=204)
    return Answer(loggers.set_level(name, str(level)))


_ROUTES: Final[list[tuple[str, str, Handler]]] = [
    ("/connectors", "GET", _list),
    ("/connectors", "POST", _create),
    ("/connectors/{name}", "GET", _by_name(Operations.info)),
    ("/connectors/{name}", "DELETE", _delete),
    ("/connectors/{name}/config", "GET", _by_name(Operations.config)),
    ("/connectors/{name}/config", "PUT", _put_config),
    ("/connectors/{name}/config", "PATCH", _patch_config),
    ("/connectors/{name}/status", "GET", _by_name(Operations.status)),
    ("/connectors/{name}/progress", "GET", _by_name(Operations.progress)),
    ("/connectors/{name}/lag", "GET", _by_name(Operations.lag)),
    ("/connectors/{name}/restart", "POST", _restart),
    ("/connectors/{name}/pause", "PUT", _target(Target.PAUSED, 202)),
    ("/connectors/{name}/resume", "PUT", _target(Target.STARTED, 202)),
    ("/connectors/{name}/stop", "PUT", _target(Target.STOPPED, 204)),
    ("/connectors/{name}/tasks", "GET", _by_name(Operations.tasks)),
    ("/connectors/{name}/tasks/{task}/status", "GET", _task_status),
    ("/connectors/{name}/tasks/{task}/restart", "POST", _restart_task),
    ("/connectors/{name}/topics", "GET", _by_name(Operations.topics)),
    ("/connectors/{name}/topics/reset", "PUT", _forget_topics),
    ("/connectors/{name}/offsets", "GET", _by_name(Operations.offsets)),
    ("/connectors/{name}/offsets", "PATCH", _alter_offsets),
    ("/connectors/{name}/offsets", "DELETE", _by_name(Operations.reset_offsets)),
    ("/connector-plugins", "GET", _plugins),
    ("/connector-plugins/{plugin}/config", "GET", _definitions),
    ("/connector-plugins/{plugin}/config/validate", "PUT", _validate),
    ("/admin/loggers", "GET", _loggers),
    ("/admin/loggers/{logger}", "GET", _logger),
    ("/admin/loggers/{logger}", "PUT", _set_logger),
]
