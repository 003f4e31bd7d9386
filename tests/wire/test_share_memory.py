"""What members of share groups are given and do not take stays within queued.max.request.bytes."""

from contextlib import ExitStack
from typing import Final

from tests.support.bystander import resident_bytes
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.share_groups import topic_id
from tests.support.share_member import ShareMember
from tests.support.stories import Teller, batch, produce

MIB: Final = 1 << 20
GROUPS: Final = 16
PARTITIONS: Final = 12


def initialized(member: ShareMember) -> bool:
    try:
        member.initialize(partitions=PARTITIONS)
    except AssertionError:  # the share coordinator's topic is being made
        return False
    return True


def test_records_that_share_consumers_do_not_take_are_no_more_than_the_memory_limit() -> None:
    """Each of sixteen groups is owed 10 MB."""
    properties = {"queued.max.request.bytes": str(32 * MIB)}
    with OttlaProcess(properties=properties) as broker, ExitStack() as stack:
        Teller(broker.bootstrap).create("t", PARTITIONS)
        for number in range(PARTITIONS):
            ask(broker.bootstrap, produce([("t", number, batch(b"v" * 900_000))]), 12)
        topic = topic_id(broker.bootstrap, "t")
        members = [stack.enter_context(ShareMember(broker.bootstrap, f"g{at}", topic)) for at in range(GROUPS + 1)]
        for member in members:
            eventually(lambda member=member: initialized(member))
        *slow, reader = members
        before = peak = resident_bytes(broker.pid)
        for member in slow:
            member.send(member.fetch_request(partitions=range(PARTITIONS), max_bytes=16 * MIB, max_wait_ms=1000), 1)
            assert member.is_answered(20)
            peak = max(peak, resident_bytes(broker.pid))
        print(f"{(peak - before) / MIB:.0f} MiB")
        assert peak - before < 64 * MIB
        for member in slow:
            member.disconnect()
        eventually(lambda: reader.acquire(partitions=range(PARTITIONS), max_bytes=16 * MIB, max_wait_ms=500))
