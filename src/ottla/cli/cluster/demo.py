"""`ottla cluster demo`: brokers of a cluster are killed under load, and nothing is lost."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.brokers.client import Connection
from ottla.cli.cluster.local_cluster import HOST, LocalCluster
from ottla.cli.cluster.own_controllers import MOST
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import columns_of, note, plural, print_json, print_rows
from ottla.cli.zookeeper.jars import class_path
from ottla.cli.zookeeper.server import ZooKeeperProcess, java_program
from ottla.client.errors import ClientError
from ottla.client.partition import Partition
from ottla.processes import free_ports
from ottla.waiting import tries

if TYPE_CHECKING:
    from ottla.cli.cluster.state import ClusterState
    from ottla.cli.cluster.traffic import Traffic, Verdict
    from ottla.cli.cluster.watch import ClusterLook

RACKS: Final = ("a", "b", "c", "d")
"""One broker in each."""
TOPICS: Final = ("orders", "payments")
PARTITIONS: Final = 3
TIMEOUT_S: Final = 30.0
LOOK_S: Final = 0.1
SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "2000",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "6",
    "replica.lag.time.max.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Two replicas, of which one may be lost; failures are detected quickly; preferred leaders return on request only."""
COLUMNS: Final = columns_of("step~ took_s=TOOK# writes_paused_s=WRITES_PAUSED# reads_paused_s=READS_PAUSED#")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what was done, its duration, and the longest gaps between acknowledgements and between reads, in s."""

    step: str
    took_s: float
    writes_paused_s: float | None = None
    reads_paused_s: float | None = None

    def row(self) -> dict[str, object]:
        """For a table."""
        times = {"took_s": self.took_s, "writes_paused_s": self.writes_paused_s, "reads_paused_s": self.reads_paused_s}
        return {"step": self.step, **{name: None if at is None else round(at, 2) for name, at in times.items()}}


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where everything is kept afterwards. [default: nowhere]",
)
@click.option("--with-zookeeper", is_flag=True, help="With ZooKeeper instead of controllers of its own.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An installation of ZooKeeper, as for `ottla zookeeper`.",
)
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(10, 10_000),
    default=400,
    show_default=True,
    help="Records written per second.",
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, 600),
    default=2.0,
    show_default=True,
    help="Quiet between the kills.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def demo(
    directory: Path | None, with_zookeeper: bool, home: Path | None, rate: int, seconds: float, as_json: bool
) -> None:
    """Run four brokers on this machine, kill some of them under load, and count what was lost.

    Three of them are the controllers, too.

    Topics have three partitions with two replicas. The leader of one partition is killed, and its follower leads;
    the controller is killed, and another broker is; both are started again, come back into sync, and lead again by
    election. A producer and a group of consumers go on all the while. Ends with 1 if anything acknowledged was lost,
    doubled or disordered.
    """
    jars: str | None = None
    if with_zookeeper:
        java_program()  # checked first: the error comes before any download
        jars = class_path(home, note)
    kept = directory or Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        steps, verdict = _run(jars, kept, rate, seconds)
    except (CommandFailed, ClientError) as failure:
        raise CommandFailed(f"{failure}\nthe logs of the brokers are in {kept}") from None
    except BaseException:
        if directory is None:
            shutil.rmtree(kept, ignore_errors=True)
        raise
    if as_json:
        print_json({"steps": [step.row() for step in steps], **asdict(verdict)})
    else:
        print_rows([step.row() for step in steps], COLUMNS)
        note(sentence(verdict))
    if not verdict.is_good:
        raise CommandFailed(f"something was lost or came out of order; the logs of the brokers are in {kept}")
    if directory is None:
        shutil.rmtree(kept, ignore_errors=True)


def sentence(verdict: "Verdict") -> str:
    """What became of the records."""
    said = f"{plural(verdict.acknowledged, 'record')} acknowledged"
    if verdict.is_good:
        return f"{said}: each is in the log once and in order, and the group has read it"
    wrong = {name: count for name, count in asdict(verdict).items() if count and name != "acknowledged"}
    return "; ".join([said, *(f"{count:,} {name.replace('_', ' ')}" for name, count in wrong.items())])


def _run(jars: str | None, directory: Path, rate: int, quiet_s: float) -> tuple[list[Step], "Verdict"]:
    from ottla.cli.cluster.traffic import Traffic
    from ottla.cli.cluster.watch import ClusterLook

    began = time.monotonic()
    started = f"{plural(len(RACKS), 'broker')}" if jars is None else f"ZooKeeper and {plural(len(RACKS), 'broker')}"
    note(f"starting {started}")
    cluster = _cluster(jars, directory)
    with cluster:
        steps = [Step(f"start {started}", time.monotonic() - began)]
        connection = Connection(cluster.bootstrap)
        with ClusterLook(connection, tuple(TOPICS)) as look:
            scene = Scene(cluster, connection, look, quiet_s)
            scene.create_topics()
            with Traffic(cluster.bootstrap, scene.partitions, rate) as traffic:
                steps += scene.play(traffic)
                note("reading everything again")
                before = time.monotonic()
                verdict = traffic.finish()
        steps.append(Step("read the log from its start", time.monotonic() - before))
    return steps, verdict


def _cluster(jars: str | None, directory: Path) -> LocalCluster:
    """Brokers with controllers of their own, or with ZooKeeper from these jars."""
    free = free_ports(len(RACKS) + MOST)
    ports, others = free[: len(RACKS)], free[len(RACKS) :]
    if jars is None:
        return LocalCluster(ports, directory, SETTINGS, racks=RACKS, controllers=dict(enumerate(others, 1)))
    server = ZooKeeperProcess(jars, directory / "zookeeper", HOST, others[0])
    return LocalCluster(ports, directory, SETTINGS, racks=RACKS, server=server, connect=server.address)


class Scene:
    """The steps done to the brokers. Every method may raise `CommandFailed`."""

    def __init__(self, cluster: LocalCluster, connection: Connection, look: "ClusterLook", quiet_s: float) -> None:
        self._cluster = cluster
        self._connection = connection
        self._look = look
        self._quiet_s = quiet_s
        self._before: ClusterState | None = None
        self.partitions = [Partition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        self._victim = 0
        self._controller = 0

    def create_topics(self) -> None:
        """So that no partition is on both brokers that are killed: they are down at the same time for a while."""
        from confluent_kafka.admin import NewTopic

        self._controller = self._controller_at_start()
        *others, self._victim = (number for number in self._cluster.brokers if number != self._controller)
        second, third = others  # the last broker is no controller: two of three controllers have to run
        replicas = {
            "orders": [[self._victim, second], [second, third], [third, self._controller]],
            "payments": [[third, self._victim], [self._controller, second], [second, self._victim]],
        }
        admin = self._connection.admin()
        new = [NewTopic(topic, PARTITIONS, replica_assignment=replicas[topic]) for topic in TOPICS]
        for future in admin.create_topics(new).values():
            self._connection.wait(future)
        self._until(lambda state: len(state.partitions) == len(self.partitions) and not state.without_leader, "leaders")

    def _controller_at_start(self) -> int:
        with self._connection.broker_admin() as admin:
            for _ in tries(TIMEOUT_S, every_s=LOOK_S):
                controller = admin.describe_controllers(admin.describe_cluster([])).active
                if controller is not None:
                    return controller
        raise CommandFailed("no broker has become the controller")

    def play(self, traffic: "Traffic") -> Iterator[Step]:
        """Kill, kill, start again, elect."""
        self._until(lambda _: bool(traffic.read.records), "record read by the group")
        self._quiet()
        victim, controller = self._victim, self._controller
        yield self._kill(
            traffic,
            victim,
            f"kill broker {victim}, which leads orders-0",
            lambda state: state.partitions[self.partitions[0]].leader not in (victim, None),
        )
        self._quiet()
        yield self._kill(
            traffic,
            controller,
            f"kill broker {controller}, the controller",
            lambda state: state.controller not in (controller, None) and not state.without_leader,
        )
        self._quiet()
        with self._timed(traffic, f"start brokers {victim} and {controller} again, until all are in sync") as steps:
            for number in (victim, controller):
                self._cluster.brokers[number].start()
            self._until(
                lambda state: len(state.up) == len(RACKS) and not state.under_replicated, "all replicas in sync"
            )
        yield steps[0]
        with self._timed(traffic, "elect the preferred leaders") as steps:
            self._elect()
            self._until(
                lambda state: all(part.leader == part.replicas[0] for part in state.partitions.values()),
                "the preferred leaders",
            )
        yield steps[0]
        self._quiet()

    def _kill(self, traffic: "Traffic", number: int, what: str, done: "Callable[[ClusterState], bool]") -> Step:
        """Until another has taken over, and everything is written to again."""
        with self._timed(traffic, what) as steps:
            at = time.monotonic()
            self._cluster.brokers[number].kill()
            self._until(lambda state: number not in state.up and done(state), "a new leader")
            self._until(
                lambda _: all(
                    traffic.acknowledged.first_after(at, [partition]) is not None for partition in self.partitions
                ),
                "writes to all partitions",
            )
        return steps[0]

    @contextlib.contextmanager
    def _timed(self, traffic: "Traffic", what: str) -> Iterator[list[Step]]:
        note(what)
        steps: list[Step] = []
        began = time.monotonic()
        yield steps
        steps.append(
            Step(
                what,
                time.monotonic() - began,
                traffic.acknowledged.longest_pause_s(began),
                traffic.read.longest_pause_s(began),
            )
        )

    def _elect(self) -> None:
        from confluent_kafka import ElectionType, TopicPartition

        admin = self._connection.admin()
        self._connection.metadata(admin)  # or the client library asks the controller that was killed, and has restarted
        wanted = [TopicPartition(topic, number) for topic, number in self.partitions]
        self._connection.wait(admin.elect_leaders(ElectionType.PREFERRED, wanted))

    def _quiet(self) -> None:
        for _ in tries(self._quiet_s, every_s=LOOK_S):
            self._look_once()

    def _until(self, holds: "Callable[[ClusterState], bool]", what: str) -> None:
        state: ClusterState | None = None
        for _ in tries(TIMEOUT_S, every_s=LOOK_S):
            state = self._look_once()
            if state is not None and holds(state):
                return
        found = "no broker answers" if state is None else state.summary()
        raise CommandFailed(f"no {what} within {TIMEOUT_S:.0f} s: {found}")

    def _look_once(self) -> "ClusterState | None":
        """Return the cluster's state and print its changes; None if no broker answers."""
        from ottla.cli.cluster.state import changes

        try:
            state = self._look.take()
        except (CommandFailed, ClientError):
            return None
        if self._before is not None:
            for change in changes(self._before, state):
                note(f"    {change}")
        self._before = state
        return state
