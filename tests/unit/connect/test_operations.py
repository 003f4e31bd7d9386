"""Changes that are asked for at once."""

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.operations import Operations, Refused
from ottla.connect.state import CONNECTOR, Target
from ottla.connect.statuses import Statuses
from ottla.connect.threads import in_thread


class Leader:
    """A worker whose first write of a configuration waits; `written` is what was written, in its order."""

    def __init__(self) -> None:
        self.lock, self.membership = threading.RLock(), SimpleNamespace(settled=True, leading=True)
        self.statuses, self.logs = SimpleNamespace(tasks=lambda _: {}), None
        self.state = SimpleNamespace(connectors={"tested": SimpleNamespace(config={"a": "1"}, tasks=())})
        self.written: list[str] = []
        self.writes, self.go_on = threading.Event(), threading.Event()

    def put_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        if value is not None:
            self.writes.set()
            assert self.go_on.wait(60)
        self.written.append(key if value is not None else f"no {key}")
        if key == f"{CONNECTOR}tested":
            self.state.connectors.pop("tested", None)
            if value is not None:
                self.state.connectors["tested"] = SimpleNamespace(config=value["properties"], tasks=())

    def forget_topics(self, _name: str) -> None: ...


@pytest.mark.parametrize(
    "change",
    [lambda asked: asked.patch_config("tested", {"a": "2"}), lambda asked: asked.set_target("tested", Target.PAUSED)],
)
def test_a_connector_that_was_deleted_does_not_come_back(
    change: Callable[[Operations], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Statuses, "put_connector", lambda *_: None)
    worker: Any = Leader()
    asked: Any = Operations(worker)
    asked._accept = lambda _config: None
    asked.info = lambda _name: {}
    changed = in_thread("change", lambda: change(asked))
    assert worker.writes.wait(60)
    deleted = in_thread("delete", lambda: asked.delete("tested"))
    with pytest.raises(TimeoutError):  # the one that came first is still being written
        deleted.result(0.1)
    worker.go_on.set()
    changed.result(60)
    deleted.result(60)
    assert worker.written[1:] == ["no connector-tested", "no target-state-tested"]
    assert asked.names() == []
    with pytest.raises(Refused, match="Unknown connector tested"):
        asked.set_target("tested", Target.PAUSED)
