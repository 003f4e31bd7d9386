"""Log directories that fail: their partitions are led by others, and the broker goes on with the rest."""

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.testing.faulty_fs import FaultyFS, Operation
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.whole_topic import read_all

WRITES = (Operation.WRITE, Operation.SYNC, Operation.CREATE, Operation.RENAME)


@pytest.fixture
def files() -> FaultyFS:
    return FaultyFS()


@pytest.fixture
def cluster(files: FaultyFS) -> Iterator[ClusterInProcess]:
    """Broker 2, not the controller, has two disks that may fail."""
    with ClusterInProcess(log_directories=("a", "b"), files={2: files}) as started:
        for name in ("a", "b"):
            (started.directory / "2" / name).mkdir(parents=True)  # whose volume can be asked for its size
        yield started


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def break_directory(cluster: ClusterInProcess, files: FaultyFS, name: str) -> None:
    for operation in WRITES:
        files.fail(operation, f"{cluster.directory}/2/{name}/*", times=None)


def directories(cluster: ClusterInProcess) -> dict[str, tuple[int, set[int]]]:
    """What broker 2 says of its directories: the error, and the partitions of `t` in each."""
    response = ask(cluster.address(2), DescribeLogDirsRequest(topics=None), 4)
    return {
        result.log_dir.rpartition("/")[2]: (
            result.error_code,
            {part.partition_index for topic in result.topics if topic.name == "t" for part in topic.partitions},
        )
        for result in response.results
    }


def produce_to_all(cluster: ClusterInProcess, first: int) -> None:
    for number in range(4):
        cluster.produce("t", values(first + 10 * number, 10), partition=number)


def test_one_of_two_directories_fails_and_is_mended(cluster: ClusterInProcess, files: FaultyFS) -> None:
    assert cluster.controller == 1
    cluster.create("t", [[2, 3, 1]] * 4)
    produce_to_all(cluster, 0)
    placed = {name: found for name, (_, found) in directories(cluster).items()}
    assert sorted(map(len, placed.values())) == [2, 2]
    break_directory(cluster, files, "a")
    produce_to_all(cluster, 40)  # by clients that know who led so far
    assert directories(cluster) == {"a": (ErrorCode.KAFKA_STORAGE_ERROR, set()), "b": (0, placed["b"])}
    for number in placed["a"]:
        eventually(lambda number=number: cluster.partition("t", number).isr == (3, 1))
        assert cluster.partition("t", number).leader == 3
    for number in placed["b"]:
        assert (cluster.partition("t", number).leader, set(cluster.partition("t", number).isr)) == (2, {1, 2, 3})
    cluster.create("u", [[2, 1, 3]])
    cluster.produce("u", values(0, 10))
    eventually(lambda: not [path for path in list(cluster.tree.nodes) if "/log_dir_event" in path])
    cluster.stop(2)
    files.heal()
    cluster.start(2)
    eventually(lambda: all(set(cluster.partition("t", number).isr) == {1, 2, 3} for number in range(4)))
    assert {name: found for name, (_, found) in directories(cluster).items()} == placed
    assert sorted(read_all(cluster.bootstrap, "t", 80)) == sorted(values(0, 80))


def test_what_was_in_a_directory_that_is_broken_at_the_start_is_not_made_anew(
    cluster: ClusterInProcess, files: FaultyFS
) -> None:
    """An empty replica in its stead, of which all others are gone, would lead and make everything lost."""
    cluster.create("t", [[2, 3]] * 4, min_insync_replicas="1")
    produce_to_all(cluster, 0)
    placed = {name: found for name, (_, found) in directories(cluster).items()}
    cluster.stop(3)
    eventually(lambda: all(cluster.partition("t", number).isr == (2,) for number in range(4)))
    cluster.stop(2)
    for operation in (*WRITES, Operation.OPEN, Operation.READ, Operation.LIST, Operation.MAKE_DIRECTORY):
        files.fail(operation, f"{cluster.directory}/2/a*", times=None)
    cluster.start(2)
    eventually(lambda: all(cluster.partition("t", number).leader == 2 for number in placed["b"]))
    eventually(lambda: all(cluster.partition("t", number).leader == -1 for number in placed["a"]))
    assert all(cluster.partition("t", number).isr == (2,) for number in range(4))
    assert directories(cluster)["b"] == (0, placed["b"])


def test_without_a_directory_left_the_broker_gives_up(cluster: ClusterInProcess, files: FaultyFS) -> None:
    cluster.create("t", [[2, 3, 1]] * 4)
    break_directory(cluster, files, "*")
    produce_to_all(cluster, 0)
    failure = eventually(lambda: cluster.brokers[2].failure)
    assert "no log directory is left" in failure
    assert "Input/output error" in failure
    eventually(lambda: all(cluster.partition("t", number).leader == 3 for number in range(4)))


def test_a_full_disk_is_no_failure(cluster: ClusterInProcess, files: FaultyFS) -> None:
    cluster.create("t", [[1, 2, 3]])
    files.capacity_bytes = files.used_bytes() + 100
    cluster.produce("t", values(0, 10))
    assert cluster.partition("t").isr == (1, 3)
    assert all(error == 0 for error, _ in directories(cluster).values())
    files.heal()
    eventually(lambda: set(cluster.partition("t").isr) == {1, 2, 3})
