"""Late requests of producers that have gone on."""

import pytest

from ottla.ids import ProducerIdAndEpoch
from ottla.server.framer import BadFrame
from ottla.server.producer_connections import ProducerConnections, To

P = ProducerIdAndEpoch(7, 0)
COORDINATOR, GROUP = To.TRANSACTION_COORDINATOR, To.GROUP_COORDINATOR


def test_a_request_over_a_connection_that_was_left_is_late() -> None:
    connections = ProducerConnections()
    connections.accepted(COORDINATOR, P, 3)
    connections.refuse_late(COORDINATOR, P, 3)
    connections.refuse_late(COORDINATOR, P, 4)
    connections.accepted(COORDINATOR, P, 4)
    with pytest.raises(BadFrame, match="a request of producer 7 at epoch 0 comes late"):
        connections.refuse_late(COORDINATOR, P, 3)
    connections.accepted(COORDINATOR, P, 3)  # was under way before
    with pytest.raises(BadFrame):
        connections.refuse_late(COORDINATOR, P, 3)


def test_others_are_not_concerned() -> None:
    connections = ProducerConnections()
    connections.accepted(COORDINATOR, P, 4)
    connections.refuse_late(GROUP, P, 3)
    connections.refuse_late(COORDINATOR, P._replace(producer_id=8), 3)
    connections.refuse_late(COORDINATOR, P._replace(epoch=1), 3)  # fencing is by epoch there


def test_a_successor_begins_anew() -> None:
    connections = ProducerConnections()
    connections.accepted(COORDINATOR, P, 9)
    connections.accepted(COORDINATOR, P._replace(epoch=1), 2)
    connections.refuse_late(COORDINATOR, P._replace(epoch=1), 2)
    with pytest.raises(BadFrame):
        connections.refuse_late(COORDINATOR, P._replace(epoch=1), 1)


def test_the_one_that_is_silent_for_longest_is_forgotten_first() -> None:
    connections = ProducerConnections(remembered=2)
    for producer_id in (1, 2, 1, 3):
        connections.accepted(COORDINATOR, ProducerIdAndEpoch(producer_id, 0), 5)
    connections.refuse_late(COORDINATOR, ProducerIdAndEpoch(2, 0), 1)
    for producer_id in (1, 3):
        with pytest.raises(BadFrame):
            connections.refuse_late(COORDINATOR, ProducerIdAndEpoch(producer_id, 0), 1)
