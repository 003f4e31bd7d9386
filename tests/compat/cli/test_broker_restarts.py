"""Producers and consumers of the command line while the broker is killed and comes back."""

import fcntl
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

from ottla.cli.terminal import exits

RECORDS = 60


def unread_bytes(process: "subprocess.Popen[bytes]") -> int:
    """How many bytes lie in the pipe to a process."""
    assert process.stdin is not None
    return int(struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))[0])


@pytest.mark.timeout(180)
def test_nothing_is_lost_or_doubled_over_a_kill(broker: BrokerProcess) -> None:
    with type(broker)(properties={"offsets.topic.num.partitions": "1"}) as own:
        ottla = OttlaProgram(own.bootstrap)
        ottla("topic", "create", "restarts")
        writer = ottla.start("produce", "restarts")
        reader = ottla.start("consume", "restarts", "--from-beginning", "-n", str(RECORDS))
        try:
            assert writer.stdin is not None
            for number in range(RECORDS):
                writer.stdin.write(b"%d\n" % number)
                writer.stdin.flush()
                if number == RECORDS // 3:
                    eventually(lambda: ottla("consume", "restarts", "-e").stdout)
                    own.restart(kill=True)
            out, err = writer.communicate(timeout=90)
            assert (writer.returncode, out) == (0, b"")
            assert err.decode().endswith(f"{RECORDS} records acknowledged\n")
            out, err = reader.communicate(timeout=60)
            assert reader.returncode == 0, err.decode()
            assert out.decode().split() == [str(number) for number in range(RECORDS)]
        finally:
            for process in (writer, reader):
                process.kill()
                process.wait()


@pytest.mark.timeout(120)
def test_a_producer_whose_broker_is_gone_can_be_interrupted(broker: BrokerProcess) -> None:
    with type(broker)() as own:
        ottla = OttlaProgram(own.bootstrap)
        ottla("topic", "create", "gone")
        writer = ottla.start("produce", "gone")
        try:
            assert writer.stdin is not None
            assert writer.stderr is not None
            writer.stdin.write(b"0\n")
            writer.stdin.flush()
            eventually(lambda: ottla("consume", "gone", "-e").stdout)
            own.kill()
            writer.stdin.write(b"1\n")
            writer.stdin.flush()
            told = writer.stderr.readline().decode()
            assert "the broker does not answer; trying again" in told
            eventually(lambda: unread_bytes(writer) == 0)
            time.sleep(0.3)  # from the pipe to the client's queue
            threading.Timer(1.5, writer.send_signal, [signal.SIGINT]).start()  # the second Ctrl-C does not wait
            writer.send_signal(signal.SIGINT)
            _, err = writer.communicate(timeout=30)
            assert writer.returncode == exits.INTERRUPTED
            assert "interrupted: 1 record acknowledged, 1 failed" in err.decode()
        finally:
            writer.kill()
            writer.wait()
