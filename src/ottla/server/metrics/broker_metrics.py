"""The metrics of one broker: what counts while it runs, and the addresses at which it is read.

    thread of the endpoint -- asks --> loop: gathers in slices --> thread: more that may wait for a disk, then the text

`BrokerMetrics` is opened before the log directories, so that a broker that recovers for minutes can say so.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.metrics.endpoint import Endpoint, Page, Visitor, addresses
from ottla.metrics.families import Measurements
from ottla.metrics.health import JSON
from ottla.metrics.log_lines import LogLines
from ottla.metrics.process import SHARED_S, need_client_library
from ottla.server.client_metrics import ClientSeries
from ottla.server.metrics.catalog import BROKERS, MIGRATION_STATE
from ottla.server.metrics.controller_page import controller_page
from ottla.server.metrics.debugging import broker_page, process_page, thread_stacks
from ottla.server.metrics.error_counts import ErrorCounts
from ottla.server.metrics.gathering import (
    Limits,
    Meters,
    gather_broker,
    gather_clients,
    gather_process,
    gather_topics,
    measure_disks,
)
from ottla.server.metrics.groups import gather_groups
from ottla.server.metrics.health import Phase, look_at
from ottla.server.metrics.loop_delay import LoopDelay
from ottla.server.metrics.quorum import gather_quorum, look_at_controller
from ottla.server.metrics.request_meter import RequestMeter
from ottla.slices import Slices

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.replication.compaction import Compaction
    from ottla.server.context import Services
    from ottla.server.controller_server import ControllerServer
    from ottla.server.dispatch import Dispatcher
    from ottla.server.listeners import Listeners

T = TypeVar("T")

ANSWER_S: Final = 10.0
"""How long the loop may take to answer; a broker that is longer busy does not live."""


class BrokerMetrics:
    """Owns the endpoints and the meters of a broker; as a context manager, on the loop's thread."""

    def __init__(self, config: "BrokerConfig", clock: "Clock", loop: asyncio.AbstractEventLoop) -> None:
        need_client_library()
        from ottla.metrics.exposition import expose

        self._expose = expose
        self._config = config
        self._clock = clock
        self._loop = loop
        self._slices = Slices(clock)
        self._began = clock.monotonic()
        self._phase = Phase.STARTING
        self._services: Services | None = None
        self._controller: ControllerServer | None = None
        self._alone: Listeners | None = None
        self._meters: Meters | None = None
        self._stack = ExitStack()
        self._log_lines = LogLines()
        self._gathering = asyncio.Lock()
        self._gathered: tuple[float, Measurements] | None = None
        self.migration_state: Callable[[], int] | None = None
        """How far a node of a cluster is in the move from ZooKeeper."""
        self.ports: list[int] = []
        """The ports of the endpoints, in the order of `metrics.listeners`."""

    def __enter__(self) -> "BrokerMetrics":
        with self._stack:
            self._stack.enter_context(self._log_lines)
            routes = {
                "/metrics": self._metrics,
                "/health/live": self._live,
                "/health/ready": self._ready,
                "/debug": self._debug,
            }
            for address in addresses(",".join(self._config.metrics_listeners)):
                endpoint = Endpoint(address, routes)
                self._stack.callback(endpoint.close)
                self.ports.append(endpoint.port)
            self._stack = self._stack.pop_all()
        return self

    async def close(self) -> None:
        """Stop serving; threads that wait for the loop are let finish."""
        await self._loop.run_in_executor(None, self._stack.close)

    def meter(self, dispatcher: "Dispatcher") -> RequestMeter:
        """The dispatcher, with its requests and the errors in its answers counted."""
        requests = RequestMeter(dispatcher, self._clock.monotonic, self._clock.now_ms)
        errors = dispatcher.count_errors = ErrorCounts()
        delay = LoopDelay(self._loop)
        self._stack.callback(self._loop.call_soon_threadsafe, delay.close)
        self._meters = Meters(requests, delay, self._log_lines, self._began, errors)
        return requests

    def serving(self, services: "Services", compaction: "Compaction") -> None:
        """The broker serves from now on."""
        assert self._meters is not None
        self._meters = self._meters._replace(compaction=compaction)
        services.telemetry.series = ClientSeries(self._clock.monotonic())
        self._services, self._phase = services, Phase.SERVING

    def controlling(self, controller: "ControllerServer", alone: "Listeners | None" = None) -> None:
        """The controller of this process takes part in the quorum; `alone` are its listeners if there is no broker."""
        self._controller, self._alone = controller, alone
        if alone is not None:
            self._phase = Phase.CONTROLLING

    def stopping(self) -> None:
        """The broker is about to stop."""
        self._phase = Phase.STOPPING

    # -- pages, in the endpoint's threads ----------------------------------------------------------------------------

    def _metrics(self, visitor: Visitor) -> Page:
        disks = Measurements()
        measure_disks(map(str, self._config.log_dirs), disks)
        content_type, body = self._expose(chain(self._on_loop(self._gather), disks), visitor.accept)
        return Page(body, content_type)

    def _live(self, _: Visitor) -> Page:
        async def look() -> Phase:
            return self._phase

        return Page(f"{self._on_loop(look).value}\n".encode())

    def _ready(self, _: Visitor) -> Page:
        async def look() -> Page:
            if self._controller is not None and self._alone is not None:
                return look_at_controller(self._phase, self._controller).page()
            return look_at(self._phase, self._services).page()

        return self._on_loop(look)

    def _debug(self, visitor: Visitor) -> Page:
        if not visitor.is_local:
            text = b"/debug is for administrators on this machine: ask at 127.0.0.1.\n"
            return Page(text, status=HTTPStatus.FORBIDDEN)

        async def look() -> dict[str, Any]:
            services, controller, meters = self._services, self._controller, self._meters
            listeners = self._alone if services is None else services.listeners
            if meters is None or listeners is None:
                return {}
            now_s = self._clock.monotonic()
            return {
                **({} if services is None else broker_page(services)),
                **({} if controller is None else {"controller": controller_page(controller, self._clock.boottime())}),
                **process_page(meters, listeners, now_s),
            }

        found = {"phase": self._phase.value, **self._on_loop(look), "threads": thread_stacks()}
        return Page(f"{json.dumps(found, indent=2)}\n".encode(), JSON)

    def _on_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What comes of `work` on the loop. Raises TimeoutError if the loop is busy for too long."""
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result(ANSWER_S)
        except TimeoutError:
            future.cancel()
            raise TimeoutError(f"the event loop does not answer within {ANSWER_S:.0f} s") from None

    # -- on the loop -------------------------------------------------------------------------------------------------

    async def _gather(self) -> Measurements:
        services, controller, meters = self._services, self._controller, self._meters
        if meters is None or (services is None and self._alone is None):
            return Measurements()
        async with self._gathering:
            now = self._clock.monotonic()
            if self._gathered is not None and now - self._gathered[0] < SHARED_S:
                return self._gathered[1]
            measurements = Measurements()
            if self.migration_state is not None:
                measurements.add(MIGRATION_STATE, self.migration_state())
            if controller is not None:
                await self._slices.run(gather_quorum(controller, measurements))
            if services is not None:
                await self._gather_broker(services, meters, measurements)
            elif controller is not None and self._alone is not None:
                connections = self._alone.connection_counts()
                await self._slices.run(gather_process(meters, connections, now, measurements))
                measurements.add(BROKERS, len(controller.replay.image.brokers))
            self._gathered = self._clock.monotonic(), measurements
            return measurements

    async def _gather_broker(self, services: "Services", meters: Meters, measurements: Measurements) -> None:
        config = services.metadata.config
        limits = Limits(config.metrics_topics_max, config.metrics_groups_max)
        await self._slices.run(gather_broker(services, meters, measurements))
        await self._slices.run(gather_topics(services, limits, measurements))
        await gather_groups(services, limits, measurements)
        await self._slices.run(gather_clients(services, measurements))
