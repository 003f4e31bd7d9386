"""Signals as exceptions: how a program that is told to end cleans up."""

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from ottla.cli.terminal import interruption

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def raised_by(number: signal.Signals) -> type[BaseException] | None:
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt as interrupted:
        return type(interrupted)
    return None


def test_a_terminal_that_is_closed_ends_a_program_as_sigterm_does() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interruption.install()
    assert [raised_by(number) for number in SIGNALS] == [
        KeyboardInterrupt,
        interruption.Terminated,
        interruption.Terminated,
    ]


def test_a_program_that_nohup_has_started_goes_on() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption.install()
    assert raised_by(signal.SIGHUP) is None


def test_a_signal_that_another_thread_takes_ends_the_wait() -> None:
    interruption.install()

    def take() -> None:
        time.sleep(0.2)  # the main thread waits by then
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    taker = threading.Thread(target=take)
    taker.start()
    begun = time.monotonic()
    with pytest.raises(interruption.Terminated):
        interruption.wait()
    assert time.monotonic() - begun < 5
    taker.join()
