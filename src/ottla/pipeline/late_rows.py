"""Late rows of all flows of a run, written by one thread beside Spark's queries."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.pipeline import failures
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.rows.late import Follower

_TRY_AGAIN_AFTER_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.1

log = logging.getLogger(__name__)


class LateRowsThread:
    """Has followers catch up with their flows, again after a failure; nothing is lost meanwhile."""

    def __init__(self, followers: Mapping[str, Follower]) -> None:
        self._followers = followers
        self._news = threading.Event()
        self._is_over = False
        self._writes_last = True
        self._thread = threading.Thread(target=self._work, name="late-rows", daemon=True)
        self.errors: dict[str, str] = {}
        """What keeps a flow's late rows from being written, by flow; empty when all is well."""

    def start(self) -> None:
        """Begin with what an earlier process has left."""
        if self._followers:
            self._thread.start()

    def on_batch(self, flow: str, event: Mapping[str, Any]) -> None:
        """A micro-batch is done, with this progress event of Spark's."""
        if flow in self._followers:
            self._followers[flow].on_batch(event)
            self._news.set()

    def figures(self, flow: str) -> dict[str, int]:
        """Rows written or corrected since the flow began, by the name of the figure; none for a flow whose late rows
        are left out."""
        return {each.figure: each.total for each in [self._followers[flow]]} if flow in self._followers else {}

    def finish(self, is_enough: Callable[[], bool]) -> bool:
        """After the last micro-batch: write what is left, until it `is_enough`; False if some is not written.

        What fails now, or is left, is written at the next start.
        """
        if not self._thread.is_alive():
            return True
        self._writes_last = not is_enough()
        self._is_over = True
        self._news.set()
        while self._thread.is_alive() and not is_enough():
            self._thread.join(_LOOK_EVERY_S)
        return not self._thread.is_alive() and not self.errors

    def _work(self) -> None:
        self._catch_up(unheard=True)
        while not self._is_over:
            self._news.wait(_TRY_AGAIN_AFTER_S if self.errors else None)
            self._news.clear()
            if not self._is_over:
                self._catch_up(unheard=False)
        if self._writes_last:
            self._catch_up(unheard=True)

    def _catch_up(self, *, unheard: bool) -> None:
        for flow, follower in self._followers.items():
            try:
                follower.catch_up(unheard=unheard)
            except PipelineError as problem:
                log.warning("late rows of %s are not written yet: %s", flow, problem)
                self.errors[flow] = str(problem)
            except Exception as error:  # whatever it is, the rows are still to be written: try again, and say so
                log.exception("late rows of %s are not written yet", flow)
                self.errors[flow] = f"late rows of {flow!r}: {failures.explain_python(error)}"
            else:
                self.errors.pop(flow, None)
