"""Being asked to stop."""

import os
import signal

from ottla.pipeline.stopping import StopRequest


def test_signals_are_counted_but_for_those_that_were_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    try:
        stop = StopRequest()
        with stop.listening():
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.times == 0
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.times == 1
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
