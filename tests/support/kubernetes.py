"""A stand-in for Kubernetes: its API for pods and config maps, and containers as processes of this machine.

It is what Spark's scheduler asks for, and no more: nothing is scheduled, isolated, mounted or authorized.
"""

import json
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.support.spark_cluster import kill_with_children

_ADDRESS: Final = "127.0.0.1"


class KubernetesStandIn:
    """The API at `url`; `made` has all objects that were created, with the kind of each."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is what images bring: the PATH of containers, for example."""
        self.made: list[dict[str, Any]] = []
        self._environment = environment
        self._objects: dict[str, dict[str, Any]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Gives the URL of the API until the block ends, which kills all containers."""
        standing_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                status, content = standing_in.answer(self.command, self.path, body)
                self.send_response(status)
                text = json.dumps(content).encode()
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer((_ADDRESS, 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{_ADDRESS}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            for process in self._processes.values():
                kill_with_children(process)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the object with which the API answers a request."""
        address = urlsplit(path)
        print(method, path)
        with self._lock:
            if method == "POST":
                return HTTPStatus.CREATED, self._create(address.path, body)
            found = self._objects.get(address.path)
            if method == "DELETE":
                for place in [each for each in self._objects if each.startswith(address.path)]:
                    self._delete(place)
                return HTTPStatus.OK, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            if found is not None:
                if method != "GET":
                    found["metadata"]["labels"] = {**found["metadata"].get("labels", {}), **body.get("metadata", {}).get("labels", {})}
                return HTTPStatus.OK, self._seen(address.path)
            if re.search(r"/(pods|configmaps|persistentvolumeclaims)$", address.path):
                if "watch" in parse_qs(address.query):
                    return HTTPStatus.FORBIDDEN, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403}
                items = [self._seen(place) for place in self._objects if place.startswith(f"{address.path}/")]
                return HTTPStatus.OK, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            return HTTPStatus.NOT_FOUND, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}

    def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.made.append(json.loads(json.dumps(body)))
        place = f"{path}/{body['metadata']['name']}"
        body["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self._objects[place] = body
        if body["kind"] == "Pod":
            self._start(place, body)
        return body

    def _start(self, place: str, pod: dict[str, Any]) -> None:
        (container,) = pod["spec"]["containers"]
        own = {"metadata.name": pod["metadata"]["name"], "status.podIP": _ADDRESS}
        given = {
            each["name"]: each["value"] if "value" in each else own[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container.get("env", ())
            if each.get("value") is not None or "valueFrom" in each
        }
        self._processes[place] = subprocess.Popen(
            [*container["command"], *container["args"]], env={**self._environment, **given}, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _seen(self, place: str) -> dict[str, Any]:
        process = self._processes.get(place)
        if process is not None:
            code = process.poll()
            phase = "Running" if code is None else "Failed" if code else "Succeeded"
            state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if code is None else {"terminated": {"exitCode": code}}
            name = self._objects[place]["spec"]["containers"][0]["name"]
            self._objects[place]["status"] = {"phase": phase, "podIP": _ADDRESS, "containerStatuses": [{"name": name, "ready": code is None, "restartCount": 0, "image": "", "imageID": "", "state": state}]}
        return self._objects[place]

    def _delete(self, place: str) -> None:
        self._objects.pop(place)
        process = self._processes.pop(place, None)
        if process is not None:
            kill_with_children(process)
