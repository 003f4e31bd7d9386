"""A schema registry over HTTP, as far as clients of the pipeline ask: Confluent's documented REST API.

    POST /subjects/S/versions            GET /schemas/ids/N[?format=serialized]
    POST /subjects/S                     GET /subjects/S/versions/V|latest

Schemas of Protobuf are registered, and answered, as descriptors in base64 (`format=serialized`), as Confluent's client
sends them and its registry can answer; without that format the real one answers their text, which this one lacks.
"""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse


class SchemaRegistry:
    """A context manager; `url` is where it listens. `user` (name:password) is asked of everyone if given."""

    def __init__(self, *, user: str | None = None) -> None:
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._user = user
        self.asked: list[str] = []
        """Method and path of every request."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "SchemaRegistry":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away: connections are refused from now on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        with self._lock:
            wanted = {"schemaType": "AVRO", "references": [], **schema}
            if wanted not in self._schemas:
                self._schemas.append(wanted)
            schema_id = self._schemas.index(wanted) + 1
            versions = self._subjects.setdefault(subject, [])
            if schema_id not in versions:
                versions.append(schema_id)
            return schema_id

    def _answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, dict[str, Any]]:
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, _named(body))}
            case "GET", ["schemas", "ids", number]:
                if not 1 <= int(number) <= len(self._schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return self._shown(int(number), query, {})
            case "GET", ["subjects", subject, "versions", version]:
                versions = self._subjects.get(subject)
                if versions is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                position = len(versions) if version == "latest" else int(version)
                if not 1 <= position <= len(versions):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                schema_id = versions[position - 1]
                return self._shown(schema_id, query, {"subject": subject, "version": position, "id": schema_id})
            case "POST", ["subjects", subject]:
                for position, schema_id in enumerate(self._subjects.get(subject, []), 1):
                    if self._schemas[schema_id - 1] == {"schemaType": "AVRO", "references": [], **_named(body)}:
                        return 200, {"subject": subject, "version": position, "id": schema_id, **_named(body)}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _shown(self, schema_id: int, query: dict[str, list[str]], more: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        schema = self._schemas[schema_id - 1]
        if schema["schemaType"] == "PROTOBUF" and query.get("format") != ["serialized"]:
            return 500, {"error_code": 50001, "message": "this one knows no text of Protobuf schemas"}
        return 200, {**schema, **more}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self
        wanted = None if self._user is None else "Basic " + base64.b64encode(self._user.encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def _serve(self, method: str) -> None:
                url = urlparse(self.path)
                registry.asked.append(f"{method} {url.path}")
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
                if wanted is not None and self.headers.get("Authorization") != wanted:
                    status, answer = 401, {"error_code": 40101, "message": "User cannot be authenticated"}
                else:
                    status, answer = registry._answer(method, url.path, parse_qs(url.query), body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Tests are quiet."""

        return Handler


def _named(body: Any) -> dict[str, Any]:
    return {key: body[key] for key in ("schema", "schemaType", "references") if body.get(key)}
