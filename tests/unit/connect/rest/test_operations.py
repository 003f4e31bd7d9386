"""Changes that are asked for at once, or during a rebalance."""

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.herder.state import CONNECTOR, Target
from ottla.connect.rest.operations import Elsewhere, Operations, Refused
from ottla.connect.runtime.statuses import Statuses
from ottla.connect.runtime.threads import in_thread


class Leader:
    """A worker whose first write of a configuration waits; `written` is what was written, in its order."""

    def __init__(self) -> None:
        self.lock, self.stopping, self.address = threading.RLock(), threading.Event(), "here:1"
        self.leaders: list[str | None] = []
        """Who leads, asked one time after the other; afterwards this one."""
        self.statuses, self.environment = SimpleNamespace(tasks=lambda _: {}), SimpleNamespace(logs=None)
        self.state = SimpleNamespace(connectors={"tested": SimpleNamespace(config={"a": "1"}, tasks=())})
        self.used_topics = SimpleNamespace(forget=lambda _: None)
        self.written: list[str] = []
        self.writes, self.go_on = threading.Event(), threading.Event()

    def leader(self) -> str | None:
        return self.leaders.pop(0) if self.leaders else self.address

    def put_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        if value is not None:
            self.writes.set()
            assert self.go_on.wait(60)
        self.written.append(key if value is not None else f"no {key}")
        if key == f"{CONNECTOR}tested":
            self.state.connectors.pop("tested", None)
            if value is not None:
                self.state.connectors["tested"] = SimpleNamespace(config=value["properties"], tasks=())


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


def test_a_change_waits_for_the_rebalance_that_is_under_way() -> None:
    worker: Any = Leader()
    worker.go_on.set()
    worker.leaders = [None, None]
    Operations(worker).set_target("tested", Target.PAUSED)
    assert worker.written == ["target-state-tested"]
    worker.leaders = [None, "there:1"]
    with pytest.raises(Elsewhere, match="there:1"):
        Operations(worker).set_target("tested", Target.PAUSED)


def test_a_change_is_refused_when_the_rebalance_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    worker: Any = Leader()
    worker.leaders = [None] * 1000
    monkeypatch.setattr("ottla.connect.rest.operations._REBALANCE_S", 0.1)
    with pytest.raises(Refused) as refused:
        Operations(worker).set_target("tested", Target.PAUSED)
    assert refused.value.status == 409


def test_a_worker_that_stops_lets_no_change_wait() -> None:
    worker: Any = Leader()
    worker.leaders = [None] * 1000
    waiting = in_thread("change", lambda: Operations(worker).set_target("tested", Target.PAUSED))
    with pytest.raises(TimeoutError):
        waiting.result(0.1)
    worker.stopping.set()
    with pytest.raises(Refused):
        waiting.result(10)
