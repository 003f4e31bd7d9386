"""A stand-in for Kubernetes: its API for what Spark makes there, with containers as processes of this machine.

Nothing is scheduled, isolated, mounted or refused: it shows what Spark asks for, and that a job runs on the answers.
"""

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil
import yaml

from tests.support.spark_cluster import kill_tree, kill_with_children

MANIFESTS: Final = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
KUBERNETES: Final = "1.37"
"""The version whose published schemas objects are compared with."""
NAMESPACE: Final = "shop"
DRIVER: Final = "sales-0"
_ADDRESS: Final = "127.0.0.1"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_LONG_AGO: Final = "2026-01-01T00:00:00Z"
_VERBS: Final = {"POST": "create", "PATCH": "patch", "PUT": "update"}

Object = dict[str, Any]


def manifest(name: str) -> dict[tuple[str, str], Object]:
    """The objects of a file of deploy/kubernetes, by kind and name."""
    documents = yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8"))
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


class KubernetesStandIn:
    """An API at `url` with the pod of a driver: `pods` are the others that were made, `asked` what was asked for, each
    as verb and kind of resource."""

    def __init__(self, directory: Path, path: str) -> None:
        """Containers run in directories below `directory`; `path` is the PATH that their image has."""
        self.pods: list[Object] = []
        self.asked: set[tuple[str, str]] = set()
        self._directory, self._path = directory, path
        driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": DRIVER}, "spec": {"containers": []}}
        self._objects: dict[str, Object] = {f"{_PODS}/{DRIVER}": _made(driver)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer((_ADDRESS, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://{_ADDRESS}:{self._server.server_port}"

    @contextmanager
    def serving(self) -> "Iterator[KubernetesStandIn]":
        """Serve until the block ends, which kills all containers."""
        self._directory.mkdir()
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            for process in self._processes.values():
                kill_with_children(process)

    def holds(self, pid: int) -> bool:
        """Is this process one of a container?"""
        return self._container_of(pid) is not None

    def kill_around(self, pid: int) -> None:
        """Kill the container of this process."""
        container = self._container_of(pid)
        assert container is not None
        kill_tree(container)

    def _container_of(self, pid: int) -> psutil.Process | None:
        containers = {process.pid for process in self._processes.values()}
        with suppress(psutil.NoSuchProcess):
            return next((each for each in psutil.Process(pid).parents() if each.pid in containers), None)
        return None

    # -- the API ---------------------------------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(ConnectionError):  # a driver that was killed
                    super().handle_one_request()

            def answer(self) -> None:
                if "watch=true" in self.path:
                    self.keep_silent()
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = api.answer(self.command, urlsplit(self.path).path, json.loads(body or b"{}"))
                content = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def keep_silent(self) -> None:
                """Changes are not sent: Spark also asks for all pods from time to time."""
                if "Upgrade" in self.headers:  # to WebSocket; the client then does without
                    self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
                    return
                api.asked.add(("watch", urlsplit(self.path).path.rpartition("/")[2]))
                self.send_response(HTTPStatus.OK)
                self.send_header("Connection", "close")
                self.end_headers()
                api._ended.wait()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.answer)
        return Handler

    def answer(self, method: str, path: str, body: Object) -> tuple[HTTPStatus, Object]:
        """The answer to a request for an object, or for all objects of a kind."""
        kind, _, name = path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}/").partition("/")
        verb = _VERBS.get(method) or (method.lower() if name else {"GET": "list", "DELETE": "deletecollection"}[method])
        with self._lock:
            self.asked.add((verb, kind))
            if verb == "create":
                return HTTPStatus.CREATED, self._create(path, body)
            if verb == "list":
                items = [self._seen(place) for place in self._objects if place.startswith(f"{path}/")]
                return HTTPStatus.OK, {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}
            if verb == "deletecollection":
                for place in [each for each in self._objects if each.startswith(f"{path}/") and DRIVER not in each]:
                    self._delete(place)
                return HTTPStatus.OK, {"apiVersion": "v1", "kind": "Status", "status": "Success"}
            if path not in self._objects:
                return HTTPStatus.NOT_FOUND, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404}
            if verb == "delete":
                return HTTPStatus.OK, self._delete(path)
            labels = self._objects[path]["metadata"].setdefault("labels", {})
            labels |= body.get("metadata", {}).get("labels", {})
            return HTTPStatus.OK, self._seen(path)

    def _create(self, path: str, body: Object) -> Object:
        place = f"{path}/{body['metadata']['name']}"
        self._objects[place] = _made(deepcopy(body))
        if path == _PODS:
            self.pods.append(body)
            self._processes[place] = self._start(body)
        return self._seen(place)

    def _delete(self, place: str) -> Object:
        process = self._processes.pop(place, None)
        if process is not None:
            kill_with_children(process)
        return self._objects.pop(place)

    # -- containers ------------------------------------------------------------------------------------------------

    def _start(self, pod: Object) -> "subprocess.Popen[bytes]":
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        fields = {"metadata.name": name, "status.podIP": _ADDRESS}
        given = {
            each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in each else each["value"]
            for each in container["env"]
        }
        directory = self._directory / name
        directory.mkdir()
        with (directory / "output").open("wb") as output:
            return subprocess.Popen(
                [*container["command"], *container["args"]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": self._path, "JAVA_HOME": os.environ.get("JAVA_HOME", ""), **given},
                cwd=directory,
                start_new_session=True,
            )

    def _seen(self, place: str) -> Object:
        """The object as it is now."""
        found, process = self._objects[place], self._processes.get(place)
        if process is not None:
            code = process.poll()
            found["status"] = {
                "phase": "Running" if code is None else "Failed" if code else "Succeeded",
                "podIP": _ADDRESS,
                "containerStatuses": [_container_status(found["spec"]["containers"][0]["name"], code)],
            }
        return found


def _made(given: Object) -> Object:
    given["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1", "creationTimestamp": _LONG_AGO}
    return given


def _container_status(name: str, code: int | None) -> Object:
    state: Mapping[str, Object]
    state = {"running": {"startedAt": _LONG_AGO}} if code is None else {"terminated": {"exitCode": abs(code)}}
    ready = code is None
    return {"name": name, "ready": ready, "restartCount": 0, "image": "", "imageID": "", "state": state}
