"""A quorum of two genuine controllers and an Ottla node: it follows, votes, leads, and its files are those of Kafka."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.genuine import CLUSTER_ID, kafka_tool
from tests.support.genuine_quorum import GenuineController, addresses, quorum_status
from tests.support.quorum_server import QuorumServer, Recorder, until

from ottla.metadata.quorum.metadata_log import DIRECTORY
from ottla.metadata.quorum.node import LeaderAndEpoch
from ottla.protocol.metadata_records import NoOpRecord, encode_record
from ottla.quorum.config import QuorumConfig
from ottla.quorum.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records

OTTLA, OBSERVER = 3, 9
FETCH_TIMEOUT_MS = 8_000
"""While one virtual machine starts, another one may stand still for seconds: no reason for another leader."""
NO_OP = encode_record(NoOpRecord(), 0)


class Mixed:
    """Genuine controllers 1 and 2, and where number 3 will be."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.addresses = addresses(1, 2, OTTLA)
        self.genuine = {
            number: GenuineController(
                self.addresses[number],
                self.addresses,
                directory / str(number),
                properties={
                    "controller.quorum.fetch.timeout.ms": str(FETCH_TIMEOUT_MS),
                    "controller.quorum.request.timeout.ms": str(FETCH_TIMEOUT_MS),
                },
            )
            for number in (1, 2)
        }

    def ottla(self, node_id: int) -> QuorumServer:
        """An Ottla node: number 3 votes, others observe."""
        votes = node_id == OTTLA
        voters = VoterSet(
            Voter(ReplicaKey(each.node_id), (Endpoint("CONTROLLER", "127.0.0.1", each.port),))
            for each in self.addresses.values()
        )
        return QuorumServer(
            node_id,
            self.directory / str(node_id),
            QuorumConfig(static_voters=voters, fetch_timeout_ms=FETCH_TIMEOUT_MS, request_timeout_ms=FETCH_TIMEOUT_MS),
            cluster_id=CLUSTER_ID,
            port=self.addresses[OTTLA].port if votes else 1,
            votes=votes,
        )

    def segment(self, node_id: int) -> Path:
        below = "data" if node_id in self.genuine else "."
        return self.directory / str(node_id) / below / DIRECTORY / f"{0:020d}.log"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    made = Mixed(tmp_path_factory.mktemp("quorum"))
    try:
        for node in made.genuine.values():
            node.start(wait=False)
        for node in made.genuine.values():
            node.wait_until_ready()
        yield made
    finally:
        for node in made.genuine.values():
            node.kill()


def decoded(segment: Path) -> list[str]:
    """What Kafka's own tool prints about the records in a segment of metadata."""
    printed = kafka_tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(segment)).stdout
    return [line for line in printed.splitlines() if line.startswith("|") or "baseOffset" in line]


def records_in(segment: bytes) -> list[tuple[int, bytes]]:
    """The metadata records in the bytes of a segment, by offset."""
    return [
        (record.offset, record.value or b"")
        for header in iter_batches(segment, allow_partial_end=True)
        if not header.is_control
        for record in decode_records(segment, header)
    ]


@pytest.mark.soak
def test_an_ottla_node_follows_votes_and_leads_in_a_genuine_quorum(mixed: Mixed) -> None:
    async def run() -> None:
        voter, observer = mixed.ottla(OTTLA), mixed.ottla(OBSERVER)
        heard, observed = Recorder(), Recorder()
        voter.node.register(heard)
        observer.node.register(observed)
        # an Ottla node that is there before genuine ones have a leader is elected first: it is quicker
        await until(lambda: any(len(records_of(mixed, number)) > 10 for number in mixed.genuine))
        async with voter, observer:
            first = await followed(mixed, heard, observed)
            await lead(mixed, voter, first)
            epoch = voter.node.leader.epoch
            last = 0
            for _ in range(5):
                last = await voter.node.append([NO_OP, NO_OP], epoch=epoch)
            await until(lambda: all(records_of(mixed, number)[-1:] == [(last, NO_OP)] for number in mixed.genuine))
            status = await asyncio.to_thread(quorum_status, mixed.addresses[OTTLA])
            assert f"LeaderId:               {OTTLA}\n" in status
            assert f"LeaderEpoch:            {epoch}\n" in status
            assert '{"id": 2, "endpoints": ["CONTROLLER://' in status
            await until(lambda: observed.records[-1] == (last, NO_OP))
            assert heard.records == observed.records == records_of(mixed, 1) == records_of(mixed, 2)

    asyncio.run(run())
    segments = [mixed.segment(number).read_bytes() for number in (1, 2, OTTLA, OBSERVER)]
    common = min(len(segment) for segment in segments)
    assert len({segment[:common] for segment in segments}) == 1
    ours, theirs = decoded(mixed.segment(OTTLA)), decoded(mixed.segment(1))
    assert len(ours) > 20
    assert ours[: len(theirs)] == theirs[: len(ours)]


async def followed(mixed: Mixed, *recorders: Recorder) -> LeaderAndEpoch:
    """The genuine leader, once all have what it has written so far."""
    await until(
        lambda: all(recorder.leaders and recorder.leaders[-1].leader_id in mixed.genuine for recorder in recorders)
    )
    leader = recorders[0].leaders[-1]
    assert leader.leader_id is not None
    number = leader.leader_id
    await until(lambda: len(records_of(mixed, number)) > 10)
    expected = records_of(mixed, number)
    await until(lambda: all(len(recorder.records) >= len(expected) for recorder in recorders))
    assert all(recorder.records[: len(expected)] == expected for recorder in recorders)
    return leader


async def lead(mixed: Mixed, voter: QuorumServer, first: LeaderAndEpoch) -> None:
    """Have the Ottla node elected: of the two voters that are left it has the longer log."""
    (behind,) = mixed.genuine.keys() - {first.leader_id}
    leader = mixed.genuine[first.leader_id or 0]
    await asyncio.to_thread(mixed.genuine[behind].kill)
    reached = voter.node.high_watermark or 0
    await until(lambda: (voter.node.high_watermark or 0) > reached + 1)  # a genuine controller is never idle for long
    await asyncio.to_thread(leader.kill)
    await asyncio.to_thread(mixed.genuine[behind].start)
    await until(lambda: voter.node.leader.leader_id == OTTLA)
    await asyncio.to_thread(leader.start)


def records_of(mixed: Mixed, node_id: int) -> list[tuple[int, bytes]]:
    return records_in(mixed.segment(node_id).read_bytes())
