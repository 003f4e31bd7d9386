"""A worker of connectors that answers as Kafka Connect's does, with what a test puts into it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

TRACE: Final = "org.apache.kafka.connect.errors.ConnectException: no login\n\tat jdbc:postgres://bob:hunter2@db/x\n"
PLUGIN: Final = "io.example.DbSource"


class FakeConnect:
    """Its state: the connectors, what was asked, and whether it answers strangely."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str, Any]] = []
        self.strange: bytes | None = None
        self.configs: dict[str, dict[str, str]] = {
            "orders": {"connector.class": PLUGIN, "tasks.max": "3", "db.pin": "1234", "db.password": "hunter2"},
            "archive": {"connector.class": "io.example.FileSink", "topics": "orders"},
        }
        self.states = {"orders": ["RUNNING", "RUNNING", "FAILED"], "archive": ["RUNNING"]}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The status and the body of an answer."""
        path, _, query = path.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "connectors" and len(parts) > 1 and parts[1] not in self.configs:
            return 404, {"error_code": 404, "message": f"Connector {parts[1]} not found"}
        found = self._read(parts, query) if method == "GET" else self._change([method, *parts], body)
        return found or (404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def _read(self, parts: list[str], query: str) -> tuple[int, Any] | None:
        match parts:
            case ["connectors"] if "expand=status" in query:
                return 200, {name: {"status": self._status(name), "info": self._info(name)} for name in self.configs}
            case ["connector-plugins"]:
                return 200, [{"class": PLUGIN, "type": "source"}, {"class": "io.example.Lower", "type": "converter"}]
            case ["connector-plugins", _, "config"]:
                return 200, [{"name": "db.pin", "type": "PASSWORD"}, {"name": "db.url", "type": "STRING"}]
            case ["connectors", name]:
                return 200, self._info(name)
            case ["connectors", name, "status"]:
                return 200, self._status(name)
            case ["connectors", name, "offsets"]:
                return 200, {"offsets": [{"partition": {"table": "orders"}, "offset": {"id": 7}}]}
            case ["connectors", name, "topics"]:
                return 200, {name: {"topics": ["orders"]}}
        return None

    def _change(self, parts: list[str], body: Any) -> tuple[int, Any] | None:
        match parts:
            case ["POST", "connectors"]:
                self.configs[body["name"]] = body["config"]
                self.states[body["name"]] = ["RUNNING"]
                return 201, self._info(body["name"])
            case ["PUT", "connector-plugins", _, "config", "validate"]:
                return 200, _validated(body)
            case ["PUT", "connectors", name, "config"]:
                self.configs[name] = body
                return 200, self._info(name)
            case ["POST", "connectors", name, "restart"]:
                self.states[name] = ["RUNNING"] * len(self.states[name])
                return 202, self._status(name)
            case ["PUT", "connectors", name, "pause" | "resume" | "stop"]:
                return 202, None
            case ["PATCH", "connectors", name, "offsets"]:
                return 200, {"message": "The offsets for this connector have been altered successfully"}
            case ["DELETE", "connectors", name, "offsets"]:
                return 400, {"error_code": 400, "message": "Connectors must be in the STOPPED state before that"}
            case ["DELETE", "connectors", name]:
                del self.configs[name]
                return 204, None
        return None

    def _info(self, name: str) -> dict[str, Any]:
        return {"name": name, "config": {"name": name, **self.configs[name]}, "tasks": [], "type": "source"}

    def _status(self, name: str) -> dict[str, Any]:
        tasks = [
            {"id": number, "state": state, "worker_id": "w:8083", **({"trace": TRACE} if state == "FAILED" else {})}
            for number, state in enumerate(self.states[name])
        ]
        own = {"state": "RUNNING", "worker_id": "w:8083"}
        return {"name": name, "connector": own, "tasks": tasks, "type": "source"}


def _validated(config: dict[str, str]) -> dict[str, Any]:
    wrong = [] if config.get("db.url", "").startswith("jdbc:") else [f"Invalid value {config.get('db.url')}"]
    wrong += [f"no login with {config['db.pin']}"] if config.get("db.pin") == "0000" else []
    return {
        "name": PLUGIN,
        "error_count": len(wrong),
        "groups": ["Database"],
        "configs": [
            {
                "definition": {"name": name, "type": kind, "required": True, "documentation": "<b>about</b>"},
                "value": {
                    "name": name,
                    "value": config.get(name),
                    "recommended_values": [],
                    "errors": wrong if name == "db.url" else [],
                    "visible": True,
                },
            }
            for name, kind in (("db.url", "STRING"), ("db.pin", "PASSWORD"), ("poll.ms", "INT"))
        ],
    }


@contextmanager
def fake_connect() -> Iterator[FakeConnect]:
    """A worker on a free port of this machine."""
    fake = FakeConnect()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.asked.append((self.command, self.path, body))
            status, found = fake.answer(self.command, self.path, body)
            text = b"" if found is None else json.dumps(found).encode()
            if fake.strange is not None:
                status, text = 200, fake.strange
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PATCH(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
