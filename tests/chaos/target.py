"""What is under test, as a run sees it: started, struck, healed and asked for its complaints."""

import re
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from random import Random
from typing import Final, Protocol

from tests.chaos.checker import Anomaly
from tests.chaos.plan import Fault, Strike, strikes
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.freezing import freeze, thaw
from tests.support.genuine import GenuineKafka

_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\)(?:.*\n(?!\d{4}-))*.*", re.MULTILINE)
"""With all lines to the next one of the log."""
MOST_IN_FLIGHT: Final = 5


class Target(Protocol):
    """One broker, or several. Nothing of it runs before `start`."""

    @property
    def name(self) -> str:
        """For the history."""
        ...

    @property
    def bootstrap(self) -> str:
        """For clients."""
        ...

    @property
    def replicas(self) -> int:
        """Replicas of each partition."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests that an idempotent producer of librdkafka may have in flight: with genuine brokers one, since it may
        append records twice otherwise (`tests/compat/confluent/test_new_epochs.py`)."""
        ...

    def start(self) -> float:
        """Start all of it; returns how many seconds a broker took."""
        ...

    def strikes(self, places: int, faults: Sequence[Enum], random: Random) -> Iterator[Strike]:
        """Endless faults of the given kinds."""
        ...

    def strike(self, strike: Strike) -> str:
        """One fault, from its beginning to its end; returns what it was done to, for the history.

        Raises `BrokerFailedError` where a broker died by itself.
        """
        ...

    def heal(self) -> None:
        """No fault lasts any longer, and all is well again. Raises `BrokerFailedError` if not."""
        ...

    def troubles(self) -> list[str]:
        """What its parts have to complain of, when all is over."""
        ...

    def anomalies(self) -> list[Anomaly]:
        """What is wrong on its disks, which no client has seen. Nothing of it runs any more after this."""
        ...


class OneBroker:
    """A broker alone: see `Target`."""

    replicas = 1

    def __init__(self, broker: BrokerProcess) -> None:
        """`broker` is not started yet."""
        self._broker = broker
        self.in_flight = 1 if isinstance(broker, GenuineKafka) else MOST_IN_FLIGHT

    @property
    def name(self) -> str:
        return self._broker.name

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def start(self) -> float:
        self._broker.start()
        return time.perf_counter() - self._broker.spawned_at

    def strikes(self, places: int, faults: Sequence[Enum], random: Random) -> Iterator[Strike]:
        return strikes(places, [Fault(fault) for fault in faults], random)

    def strike(self, strike: Strike) -> str:
        broker = self._broker
        if not broker.is_alive():
            raise BrokerFailedError(f"the broker died by itself; the end of its log:\n{broker.log_tail()}")
        if strike.fault is Fault.KILL_BROKER:
            broker.kill()
            broker.start()
        elif strike.fault is Fault.RESTART_BROKER:
            broker.restart()
        elif strike.fault is Fault.PAUSE_BROKER:
            freeze(broker.pid)
            try:
                time.sleep(strike.seconds)
            finally:
                thaw(broker.pid)
        return broker.name

    def heal(self) -> None:
        if not self._broker.is_alive():
            raise BrokerFailedError(f"the broker died by itself; the end of its log:\n{self._broker.log_tail()}")

    def troubles(self) -> list[str]:
        return traceback_in(self._broker)

    def anomalies(self) -> list[Anomaly]:
        self._broker.kill()
        return []


def traceback_in(broker: BrokerProcess, *, excused: str | None = None) -> list[str]:
    """The first traceback in its log, with what is around it, if there is one that does not say what is `excused`."""
    log = broker.log_text()
    for found in _TRACEBACK.finditer(log):
        if excused is None or excused not in found[0]:
            return [f"{broker.name} logged a traceback:\n{log[max(0, found.start() - 300) : found.start() + 2000]}"]
    return []
