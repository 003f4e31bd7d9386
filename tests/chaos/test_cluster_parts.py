"""The parts of a cluster under test: its hosts, its disks, its clocks, its replicas, and what a seed decides."""

import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from textwrap import dedent

import psutil
import pytest

from tests.chaos.__main__ import main
from tests.chaos.cluster_broker import MovableClock
from tests.chaos.cluster_disk import SmallDisk, remove_leftover_disks
from tests.chaos.cluster_network import NAMESPACES, Network, remove_leftovers
from tests.chaos.cluster_plan import OF_WORKERS, ClusterFault, Victim, cluster_strikes
from tests.chaos.cluster_replicas import METADATA_LOG, differences, metadata_differences
from tests.chaos.target import traceback_in
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess

KILLED = """
    import os, pathlib, signal, subprocess, time
    from tests.chaos.cluster_network import Network
    network = Network("one")
    network.__enter__()
    left = subprocess.Popen([*network.prefix("one"), "sleep", "600"], stdout=subprocess.DEVNULL).pid
    while pathlib.Path(f"/proc/{left}/comm").read_text() != "sleep\\n":  # until then it is on this machine's network
        time.sleep(0.01)
    print(left, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A process that leaves a host behind, and another process on it, whose id it prints."""
TOLD_THE_TIME = """
    import pathlib, sys, time
    right, never_back = time.time, time.monotonic()
    from tests.chaos.cluster_broker import follow
    follow(pathlib.Path(sys.argv[1]))
    for line in sys.stdin:
        print(*(round(10 * (told - right())) for told in (time.time(), time.time_ns() / 1e9)), flush=True)
    assert time.monotonic() - never_back < 60
"""
"""A process that says for each line of input by how much its two times of day are wrong, in tenths of seconds."""

is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="what happens without root is another test's")


# -- hosts -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("one", "two", "three") as made:
        yield made


@pytest.fixture
def listening(network: Network) -> Iterator[socket.socket]:
    """On host two."""
    with network.entered("two"), socket.create_server((network.address("two"), 7000)) as server:
        server.settimeout(5)
        yield server


def reaches(network: Network, server: socket.socket) -> bool:
    """Whether a host can connect to host two."""
    with network.entered("one"):
        try:
            socket.create_connection(server.getsockname(), timeout=0.5).close()
        except TimeoutError:
            return False
    server.accept()[0].close()
    return True


@needs_root
def test_hosts_reach_each_other_until_one_direction_is_cut(network: Network, listening: socket.socket) -> None:
    assert reaches(network, listening)
    for direction in (("one", "two"), ("two", "one")):
        network.cut(*direction)
        network.cut(*direction)
        assert not reaches(network, listening), direction
        network.mend(*direction)
        assert not reaches(network, listening), "it was cut twice"
        network.mend(*direction)
        assert reaches(network, listening)


@needs_root
def test_one_port_is_cut_beside_everything_and_mended_by_itself(network: Network, listening: socket.socket) -> None:
    network.cut("one", "two", 7001)
    assert reaches(network, listening), "another port"
    network.cut("one", "two", 7000)
    network.cut("one", "two")
    network.mend("one", "two")
    assert not reaches(network, listening)
    network.mend("one", "two", 7001)
    assert not reaches(network, listening)
    network.mend("one", "two", 7000)
    network.cut("two", "one", 7000)
    assert not reaches(network, listening), "its answers come from that port"
    network.mend("two", "one", 7000)
    assert reaches(network, listening)


@needs_root
def test_what_was_connected_before_is_cut_silently(network: Network, listening: socket.socket) -> None:
    with network.entered("one"):
        near = socket.create_connection(listening.getsockname(), timeout=2)
    far, _ = listening.accept()
    with near, far:
        network.cut("two", "one")
        far.sendall(b"lost")
        near.settimeout(0.3)
        with pytest.raises(TimeoutError):
            near.recv(10)
        network.mend("two", "one")
        near.settimeout(10)
        assert near.recv(10) == b"lost", "sent again"


@needs_root
def test_hosts_are_no_part_of_the_machines_network_and_leave_nothing(network: Network) -> None:
    names = [path.name for path in NAMESPACES.glob(f"ottla-chaos-{os.getpid()}-*")]
    assert len(names) == 4, "three hosts and a router"
    assert "198.18." not in str(psutil.net_if_addrs())
    with network.entered("one"):
        assert network.address("one") in str(psutil.net_if_addrs())
    network.__exit__(None, None, None)
    assert not list(NAMESPACES.glob(f"ottla-chaos-{os.getpid()}-*"))


@needs_root
def test_hosts_of_a_process_that_was_killed_are_removed_with_what_runs_there() -> None:
    killed = subprocess.run(
        [sys.executable, "-c", dedent(KILLED)], stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    left = int(killed.stdout)
    assert len(list(remove_leftovers())) == 2
    eventually(lambda: has_ended(left))


def has_ended(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_without_root_the_command_says_so_and_what_goes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["chaos", "--brokers", "3", "--seconds", "1"])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert main() == 2
    finally:
        signal.signal(signal.SIGTERM, handler)
    said = capsys.readouterr().err
    assert "root" in said
    assert "--loopback" in said


# -- disks and clocks --------------------------------------------------------------------------------------------------


@needs_root
def test_a_disk_that_is_full_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk", 1 << 20)
    disk.mount()
    try:
        log = disk.directory / "log"
        log.write_bytes(b"before")
        disk.fill()
        with pytest.raises(OSError) as full:
            (disk.directory / "more").write_bytes(bytes(10_000))
        assert full.value.errno == errno.ENOSPC
        disk.free()
        (disk.directory / "more").write_bytes(bytes(10_000))
        assert remove_leftover_disks() == [], "this process is alive"
    finally:
        disk.unmount()
    assert not os.path.ismount(disk.directory)
    assert log.read_bytes() == b"before", "kept for readers of the history"


def test_a_process_is_told_another_time_of_day_at_once(tmp_path: Path) -> None:
    clock = MovableClock(tmp_path / "clock")
    told = subprocess.Popen(
        [sys.executable, "-c", dedent(TOLD_THE_TIME), str(clock.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with told:
        assert told.stdin is not None
        assert told.stdout is not None
        for offset_ms, tenths in ((0, "0 0"), (3_600_000, "36000 36000"), (-700, "-7 -7")):
            clock.move(offset_ms)
            told.stdin.write("\n")
            told.stdin.flush()
            assert told.stdout.readline().strip() == tenths
        told.stdin.close()
        assert told.wait(20) == 0, "what never goes back did"


# -- replicas ----------------------------------------------------------------------------------------------------------


def batch(offset: int, epoch: int, content: bytes) -> bytes:
    return struct.pack(">qii", offset, 4 + len(content), epoch) + content


def write(log_dir: Path, partition: str, *segments: bytes) -> None:
    directory = log_dir / partition
    directory.mkdir(parents=True)
    for number, segment in enumerate(segments):
        (directory / f"{number:020d}.log").write_bytes(segment)


def test_replicas_may_be_cut_into_other_segments_and_end_elsewhere_when_they_lag(tmp_path: Path) -> None:
    one, two, three = batch(0, 0, b"one"), batch(1, 0, b"two"), batch(2, 1, b"three")
    write(tmp_path / "1", "a-0", one + two, three)
    write(tmp_path / "2", "a-0", one, two)
    write(tmp_path / "3", "a-0", one + two + three + b"torn")
    write(tmp_path / "3", "__consumer_offsets-0", one)
    write(tmp_path / "2", "__consumer_offsets-0", two)
    assert differences({number: tmp_path / str(number) for number in (1, 2, 3)}, same_end=False) == []


@pytest.mark.parametrize("shorter", [b"", None])
def test_replicas_that_were_in_sync_lack_nothing_at_their_ends(tmp_path: Path, shorter: bytes | None) -> None:
    write(tmp_path / "1", "a-0", batch(0, 0, b"one"))
    write(tmp_path / "2", "b-0" if shorter is None else "a-0", b"")
    (tmp_path / "2").mkdir(exist_ok=True)
    (found,) = differences({number: tmp_path / str(number) for number in (1, 2)}, same_end=True)
    assert (
        found
        == "a-0 is not the same on brokers 1 and 2: at offset 0 a batch of 19 bytes of epoch 0 and no batch begins"
    )


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (batch(0, 0, b"one") + batch(1, 1, b"two"), "offset 1 a batch of 19 bytes of epoch 0 and a batch of 19 bytes"),
        (batch(0, 0, b"one") + batch(1, 0, b"owt"), "offset 1"),
        (batch(0, 0, b"one") + batch(2, 0, b"two"), "offset 1 a batch of 19 bytes of epoch 0 and no batch begins"),
        (batch(1, 0, b"two"), "offset 0"),
    ],
)
def test_replicas_that_are_not_the_same_are_told_apart(tmp_path: Path, other: bytes, problem: str) -> None:
    write(tmp_path / "1", "a-0", batch(0, 0, b"one") + batch(1, 0, b"two") + batch(2, 0, b"three"))
    write(tmp_path / "2", "a-0", other)
    (found,) = differences({number: tmp_path / str(number) for number in (1, 2)}, same_end=False)
    assert found.startswith("a-0 is not the same on brokers 1 and 2")
    assert problem in found


def test_metadata_logs_are_compared_where_they_are_committed_and_not_deleted(tmp_path: Path) -> None:
    one, two, three = batch(0, 0, b"one"), batch(1, 0, b"two"), batch(2, 1, b"three")
    write(tmp_path / "1", METADATA_LOG, one + two, three + batch(3, 1, b"four"))
    write(tmp_path / "2", METADATA_LOG, two + three + batch(3, 2, b"4"))
    nodes = {number: tmp_path / str(number) for number in (1, 2)}
    assert metadata_differences(nodes, 3) == []
    (found,) = metadata_differences(nodes, 4)
    assert found.startswith("the metadata log is not the same on nodes 1 and 2: at offset 3 ")


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_the_same_seed_breaks_the_same() -> None:
    faults = (*ClusterFault, *OF_WORKERS)
    once, again, other = (list(islice(cluster_strikes(5, faults, Random(seed)), 600)) for seed in (7, 7, 8))
    assert once == again != other
    assert {strike.fault for strike in once} == set(faults)
    assert {strike.victim for strike in once} == set(Victim)
    assert {strike.place for strike in once} == set(range(5))
    assert list(cluster_strikes(5, (), Random(7))) == []


def test_a_traceback_is_excused_by_what_it_says_alone(tmp_path: Path) -> None:
    full = "2026-11-28T00:00:00Z CRITICAL the node ends\nTraceback (most recent call last):\n  File x\nOSError: full\n"
    wrong = "2026-11-28T00:00:01Z ERROR it failed\nTraceback (most recent call last):\n  File y\nValueError: wrong\n"
    node = OttlaProcess(tmp_path / "node")
    node.log_file.write_text(full)
    assert traceback_in(node, excused="full") == []
    assert len(traceback_in(node)) == 1
    node.log_file.write_text(full + wrong + "2026-11-28T00:00:02Z INFO full\n")
    (found,) = traceback_in(node, excused="full")
    assert "ValueError: wrong" in found
