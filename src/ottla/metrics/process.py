"""Metrics and health of a process that has no event loop to ask: its pages are made in the endpoint's threads."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Final

from ottla import __version__
from ottla.errors import InvalidConfig
from ottla.metrics.endpoint import SETTING, Endpoint, Page, Visitor, addresses
from ottla.metrics.families import Measurements, counter, gauge
from ottla.metrics.health import Health
from ottla.metrics.log_lines import LogLines

BUILD: Final = gauge("ottla_build_info", "", "1; the label is the version.", "version")
UPTIME: Final = gauge("ottla_uptime_seconds", "seconds", "Since this process was started.")
LOG_LINES: Final = counter("ottla_log_messages_total", "lines", "Lines that the process has logged.", "level")
FAMILIES: Final = (BUILD, UPTIME, LOG_LINES)
"""What every process has."""
SHARED_S: Final = 1.0
"""Scrapes that come within this time get the same measurements, so that many scrapers cost as much as one."""

Gather = Callable[[Measurements], None]


@contextmanager
def serving_metrics(
    listeners: str, gather: Gather, health: Callable[[], Health], is_alive: Callable[[], bool] = lambda: True
) -> Iterator[list[int]]:
    """Serve `/metrics`, `/health/live` and `/health/ready` at these addresses; yields their ports.

    listeners: as `metrics.listeners`; empty: nothing is served, and nothing gathered. gather, health and is_alive are
    called on the endpoint's threads. Raises InvalidConfig, OSError.
    """
    wanted = addresses(listeners)
    if not wanted:
        yield []
        return
    pages = _Pages(gather, health, is_alive)
    with ExitStack() as stack:
        stack.enter_context(pages.log_lines)
        routes = {"/metrics": pages.metrics, "/health/live": pages.live, "/health/ready": pages.ready}
        ports = []
        for address in wanted:
            endpoint = Endpoint(address, routes)
            stack.callback(endpoint.close)
            ports.append(endpoint.port)
        yield ports


def need_client_library(asked_by: str = SETTING) -> None:
    """Raises InvalidConfig if Prometheus' client library is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise InvalidConfig(
            f"{asked_by} needs the package prometheus-client: install Ottla with the extra `metrics`"
        ) from error


class _Pages:
    def __init__(self, gather: Gather, health: Callable[[], Health], is_alive: Callable[[], bool]) -> None:
        need_client_library()
        from ottla.metrics.exposition import expose

        self._expose = expose
        self._gather, self._health, self._is_alive = gather, health, is_alive
        self._began = time.monotonic()
        self._gathering = threading.Lock()
        self._gathered: tuple[float, Measurements] | None = None
        self.log_lines = LogLines()

    def metrics(self, visitor: Visitor) -> Page:
        content_type, body = self._expose(self._measurements(), visitor.accept)
        return Page(body, content_type)

    def live(self, _: Visitor) -> Page:
        if self._is_alive():
            return Page(b"alive\n")
        return Page(b"the process no longer does its work: restart it\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    def ready(self, _: Visitor) -> Page:
        return self._health().page()

    def _measurements(self) -> Measurements:
        with self._gathering:
            now = time.monotonic()
            if self._gathered is not None and now - self._gathered[0] < SHARED_S:
                return self._gathered[1]
            found = Measurements()
            found.add(BUILD, 1, __version__)
            found.add(UPTIME, now - self._began)
            for level, count in list(self.log_lines.counts.items()):
                found.add(LOG_LINES, count, level)
            self._gather(found)
            self._gathered = now, found
            return found
