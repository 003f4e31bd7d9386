"""Keeps late requests of a producer out of the transaction it is in now.

Clients of the first generation use one epoch for all their transactions, so no request shows which of
them it belongs to. A request that was held up on its way, and sent again over another connection after a timeout, may
arrive when the next transaction has begun, and commit half of it, or abort what was committed: the torn transactions of
Jepsen's report on Bufstream 0.1.0 (KAFKA-17754), to which Apache Kafka is open as well::

    connection 1   commit A ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ commit A      would commit half of B
    connection 2              commit A   begin B, write x   write y ~ ~ ~ ~   abort B

A client uses one connection to a broker at a time, and leaves it for another after a timeout. So a request on an
older connection than one that was accepted since is late: it is not carried out, and its connection is closed. In the
second generation every transaction has an epoch of its own (KIP-890), which identifies late requests there.
"""

from collections import OrderedDict
from enum import Enum, auto
from typing import Final

from ottla.ids import ProducerIdAndEpoch
from ottla.server.framer import BadFrame

REMEMBERED_PRODUCERS: Final = 50_000


class To(Enum):
    """The receiver of a request; a client may keep a connection to each."""

    TRANSACTION_COORDINATOR = auto()
    GROUP_COORDINATOR = auto()


class ProducerConnections:
    """Over which connection each producer of the first generation spoke last. On the loop's thread."""

    def __init__(self, remembered: int = REMEMBERED_PRODUCERS) -> None:
        self._remembered = remembered
        self._newest: OrderedDict[tuple[To, int], tuple[int, int]] = OrderedDict()
        """To the epoch and the id of the connection; ids ascend in the order in which connections were accepted."""

    def refuse_late(self, to: To, producer: ProducerIdAndEpoch, connection_id: int) -> None:
        """Raises BadFrame for a request that was sent before others which have been carried out."""
        newest = self._newest.get((to, producer.producer_id))
        if newest is not None and newest[0] == producer.epoch and connection_id < newest[1]:
            raise BadFrame(
                f"a request of producer {producer.producer_id} at epoch {producer.epoch} comes late: "
                "it has gone on over another connection since"
            )

    def accepted(self, to: To, producer: ProducerIdAndEpoch, connection_id: int) -> None:
        """A request of the producer has been carried out."""
        key = to, producer.producer_id
        newest = self._newest.get(key)
        if newest is None or newest[0] != producer.epoch or newest[1] < connection_id:
            self._newest[key] = producer.epoch, connection_id
        self._newest.move_to_end(key)
        if len(self._newest) > self._remembered:
            self._newest.popitem(last=False)  # the one that has been silent for longest
