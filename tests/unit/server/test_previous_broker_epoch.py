"""The epoch that a broker names when it registers again under a quorum: the last one, if nothing was lost since."""

from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from ottla.server.quorum_membership import QuorumMembership

LAST, OTHER = UUID(int=7), UUID(int=8)


@pytest.mark.parametrize(
    ("noted", "registered", "had_by", "named"),
    [
        (13, (13, LAST), LAST, 13),
        (13, (53, LAST), LAST, 53),  # the last process ended before it noted its epoch
        (13, (53, LAST), OTHER, 13),  # a directory is another one: the controller does not accept that epoch
        (-1, (53, LAST), LAST, -1),  # the machine has started anew
        (13, (5, LAST), LAST, 13),  # the log has not been read to its end
        (13, None, LAST, 13),
    ],
)
def test_it_is_that_of_the_last_process_if_all_directories_are_those_it_had(
    noted: int, registered: tuple[int, UUID] | None, had_by: UUID, named: int
) -> None:
    brokers = {} if registered is None else {1: SimpleNamespace(epoch=registered[0], incarnation_id=registered[1])}
    membership = SimpleNamespace(
        _config=SimpleNamespace(node_id=1),
        metadata=SimpleNamespace(state=SimpleNamespace(brokers=brokers)),
        _directories=SimpleNamespace(previous_broker_epoch=noted, were_had_by=lambda process: process == had_by),
    )
    assert QuorumMembership._previous_epoch(cast("QuorumMembership", membership)) == named
