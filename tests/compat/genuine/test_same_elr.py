"""Eligible leader replicas (KIP-966): what becomes of a partition as its brokers go and return, at a genuine controller
and at Ottla's.

The brokers are nothing but their requests: registrations, heartbeats, and the leader's AlterPartition. A genuine
controller moves the last replica in sync to the eligible ones when its broker is gone; Ottla's leaves it in sync.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import GenuineController, addresses
from tests.support.quorum_brokers import registration
from tests.support.quorum_nodes import OttlaNode
from tests.support.raw_client import RawConnection

from ottla.cluster.metadata_log.partitions import PartitionState
from ottla.cluster.quorum_log import QuorumLog
from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_partition
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

NODE = 3000
ELIGIBLE_ALIVE = "the last one is killed while an eligible one is alive"
SETTINGS = {"broker.session.timeout.ms": "2000", "unclean.leader.election.enable": "false"}


class Seen(NamedTuple):
    """A partition in the metadata log."""

    leader: int
    complete: frozenset[int]
    """The replicas that have all that is committed: in sync or eligible."""
    recovery: int


class FakeBroker:
    """Registers, and sends heartbeats until it is killed."""

    def __init__(self, address: str, broker_id: int) -> None:
        self._address = address
        self.broker_id = broker_id
        self.epoch = -1
        self._process = 0
        self._beating: threading.Thread | None = None
        self._ended = threading.Event()

    def start(self, *, previous_epoch: int = -1) -> None:
        """Register as a new process, and wait to be unfenced."""
        self._process += 1
        asked = registration(
            self.broker_id, process=self._process, cluster_id=CLUSTER_ID, previous_broker_epoch=previous_epoch
        )
        answer = eventually(lambda: self._accepted(asked), timeout_s=60)
        self.epoch = answer.broker_epoch
        eventually(lambda: not self._beat().is_fenced, timeout_s=60)
        self._ended.clear()
        self._beating = threading.Thread(target=self._run)
        self._beating.start()

    def _accepted(self, asked: Any) -> Any:
        with RawConnection(self._address) as connection:
            answer = connection.ask(asked, 4)
        assert answer.error_code in (0, ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NOT_CONTROLLER)
        return answer if answer.error_code == 0 else None

    def _beat(self) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=1 << 40,
            want_fence=False,
            want_shut_down=False,
        )
        with RawConnection(self._address) as connection:
            answer = connection.ask(request, 1)
        assert answer.error_code == 0
        return answer

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            self._beat()

    def kill(self) -> None:
        self._ended.set()
        if self._beating is not None:
            self._beating.join()


class Controller:
    """A controller with three brokers and a topic of one partition on all of them."""

    def __init__(self, node: BrokerProcess, address: str) -> None:
        self.node = node
        self.address = address
        self.brokers = {number: FakeBroker(address, number) for number in (1, 2, 3)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def create(self) -> None:
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        with RawConnection(self.address) as connection:
            answer = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7)
        assert [each.error_code for each in answer.topics] == [0]

    def state(self) -> PartitionState | None:
        """The partition as the log has it now."""
        found = QuorumLog()
        for file in sorted(Path(self.node.log_dir / "__cluster_metadata-0").glob("*.log")):
            found.read(file.read_bytes(), str(file))
        topic_id = found.state.topics.ids.get("t")  # type: ignore[call-overload]  # a name
        return None if topic_id is None else found.state.topics.states[topic_id].partitions[0]

    def shrink(self, *in_sync: int) -> None:
        """Have the leader propose these as in sync."""
        state = self.state()
        assert state is not None
        leader = self.brokers[state.image.leader]
        found = QuorumLog()
        for file in sorted(Path(self.node.log_dir / "__cluster_metadata-0").glob("*.log")):
            found.read(file.read_bytes(), str(file))
        (topic_id,) = found.state.topics.states
        request = alter_partition.AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=[
                alter_partition.TopicData(
                    topic_id=topic_id,
                    partitions=[
                        alter_partition.PartitionData(
                            partition_index=0,
                            leader_epoch=state.image.leader_epoch,
                            partition_epoch=state.image.partition_epoch,
                            new_isr_with_epochs=[
                                alter_partition.BrokerState(broker_id=each, broker_epoch=self.brokers[each].epoch)
                                for each in in_sync
                            ],
                        )
                    ],
                )
            ],
        )
        with RawConnection(self.address) as connection:
            answer = connection.ask(request, 3)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)

    def settled(self, is_so: Callable[[PartitionState], bool]) -> Seen:
        """The partition, once it is as it has to be, and has been so for a while."""
        eventually(lambda: (state := self.state()) is not None and is_so(state), timeout_s=60)
        time.sleep(1.0)
        state = self.state()
        assert state is not None
        image = state.image
        return Seen(image.leader, frozenset((*image.isr, *state.eligible)), state.recovery)


def story(controller: Controller) -> dict[str, Seen]:
    """The last one in sync is killed, comes back in one way and in the other, and what the partition is each time."""
    seen: dict[str, Seen] = {}
    one, two, three = controller.brokers.values()
    for broker in (one, two, three):
        broker.start()
    controller.create()
    controller.shrink(1, 2)
    seen["two in sync"] = controller.settled(lambda state: len(state.image.isr) == 2)
    two.kill()
    controller.shrink(1)
    seen["one in sync"] = controller.settled(lambda state: len(state.image.isr) == 1)
    one.kill()
    seen["the last one is killed"] = controller.settled(lambda state: state.image.leader == -1)
    epoch = one.epoch
    one.start(previous_epoch=epoch)
    seen["it returns after an orderly end"] = controller.settled(lambda state: state.image.leader == 1)
    two.start(previous_epoch=two.epoch)
    controller.shrink(1, 2)
    seen["and another one"] = controller.settled(lambda state: len(state.image.isr) == 2)
    controller.shrink(1)
    one.kill()
    eventually(lambda: (state := controller.state()) is not None and state.image.leader != one.broker_id, timeout_s=60)
    seen[ELIGIBLE_ALIVE] = controller.settled(lambda state: True)
    one.start(previous_epoch=one.epoch)
    seen["and it returns"] = controller.settled(lambda state: state.image.leader > 0)
    return seen


def test_partitions_are_the_same_as_at_genuine_controllers(tmp_path: Path) -> None:
    stories: dict[str, dict[str, Seen]] = {}
    for kind in ("genuine", "ottla"):
        quorum = addresses(NODE)
        own = quorum[NODE]
        node: BrokerProcess = (
            GenuineController(own, quorum, tmp_path / kind, properties=SETTINGS)
            if kind == "genuine"
            else OttlaNode(own, quorum, broker=False, properties=SETTINGS, directory=tmp_path / kind)
        )
        with ExitStack() as stack:
            stack.callback(node.kill)
            node.start()
            stories[kind] = story(stack.enter_context(Controller(node, own.endpoint)))
    for step, seen in stories["genuine"].items():
        print(f"{step}: {seen} {stories['ottla'].get(step)}")
    theirs, ours = (stories[kind].pop(ELIGIBLE_ALIVE) for kind in ("genuine", "ottla"))
    assert (theirs.leader, ours.leader) == (2, -1), "Ottla waits for the last one in sync (ADR 21)"
    assert theirs.complete == ours.complete
    assert [stories[kind].pop("and it returns").leader for kind in ("genuine", "ottla")] == [2, 1]
    assert stories["ottla"] == stories["genuine"]
