"""Brings what leaders propose about their in-sync replicas to the controller (AlterPartition, KIP-497).

One request at a time; what comes up meanwhile goes with the next one.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from ottla.protocol.schema import Message
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.replication.decisions.in_sync import Proposal
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

ALTER_PARTITION_VERSION: Final = 3
FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 0.5

AskController = Callable[[Message, int], Any]
"""Coroutine function: the controller's answer to a request of a version. Raises `BrokerUnavailable`."""


class AlterPartitionManager:
    """Sends one broker's AlterPartition requests. On the loop's thread."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        ask_controller: AskController,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._loop = loop
        self._open: dict[Partition, Proposal] = {}
        self._task: asyncio.Task[None] | None = None

    def propose(self, partition: "Partition", proposal: "Proposal") -> None:
        """Bring it to the controller, instead of an older one of the same partition."""
        self._open[partition] = proposal
        if self._task is None or self._task.done():
            self._task = supervised(self._loop, self._send_all(), "in-sync replicas")

    async def close(self) -> None:
        """Propose nothing any more."""
        self._open.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_all(self) -> None:
        pause_s = FIRST_PAUSE_S
        await asyncio.sleep(0)  # what comes up in this turn goes along
        while self._open:
            proposals, self._open = self._open, {}
            if not await self._send(proposals):
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LAST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S

    async def _send(self, proposals: "dict[Partition, Proposal]") -> bool:
        """Returns whether the controller has answered."""
        _note(
            "%s: asks for the in-sync replicas to be %s, which are %s now",
            {partition: proposal for partition, proposal in proposals.items() if proposal.isr != partition.isr},
        )
        try:
            response = await self._ask_controller(self._request(proposals), ALTER_PARTITION_VERSION)
        except BrokerUnavailable as error:
            log.info("sending AlterPartition to the controller failed; retrying: %s", error)
            self._refuse(proposals, ErrorCode.NETWORK_EXCEPTION)
            return False
        if response.error_code:
            code = ErrorCode(response.error_code)
            log.info("the controller takes no in-sync replicas now: %s", code.name)
            self._refuse(proposals, code)
            return False
        answered = {
            (topic.topic_id, data.partition_index): data for topic in response.topics for data in topic.partitions
        }
        refused: dict[ErrorCode, dict[Partition, Proposal]] = {}
        for partition, proposal in proposals.items():
            data = answered.get((partition.log.topic_id, partition.topic_partition.partition))
            if data is not None and not data.error_code:
                if data.leader_epoch == proposal.leader_epoch:
                    partition.apply_isr(tuple(map(BrokerId, data.isr)), data.partition_epoch)
                continue
            code = ErrorCode.UNKNOWN_SERVER_ERROR if data is None else ErrorCode(data.error_code)
            refused.setdefault(code, {})[partition] = proposal
        for code, some in refused.items():
            _note(f"%s: the controller refuses %s for %s: {code.name}", some)
            self._refuse(some, code)
        return not any(partition in self._open for some in refused.values() for partition in some)

    def _refuse(self, proposals: "dict[Partition, Proposal]", code: ErrorCode) -> None:
        for partition, proposal in proposals.items():
            in_sync = partition.in_sync
            if in_sync is None or in_sync.pending != proposal:
                continue  # it is led by another, or in another epoch, by now
            again = in_sync.refused(code, self._loop.time())
            if again is not None:
                self._open.setdefault(partition, again)
            else:
                partition.advance()  # a refused candidate no longer holds the high watermark back

    def _request(self, proposals: "dict[Partition, Proposal]") -> AlterPartitionRequest:
        topics: dict[UUID, TopicData] = {}
        for partition, proposal in proposals.items():
            topic_id = partition.log.topic_id
            assert topic_id is not None
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=replica, broker_epoch=epoch)
                        for replica, epoch in zip(proposal.isr, proposal.epochs, strict=True)
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )


def _note(what: str, proposals: "dict[Partition, Proposal]") -> None:
    """One line, however many there are: a broker that comes or goes changes thousands."""
    for partition, proposal in islice(proposals.items(), 1):
        rest = f"; so it is with {len(proposals) - 1} other partitions" if len(proposals) > 1 else ""
        what = f"{what}{rest}"
        log.info(what, partition.topic_partition, list(proposal.isr), list(partition.isr))
