"""A member of a share group, request by request: what the Java client sends, and what it would not."""

import base64
import select
import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from ottla.protocol.messages.initialize_share_group_state import PartitionData as PartitionToInitialize
from ottla.protocol.messages.share_acknowledge import AcknowledgementBatch as Said
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from ottla.protocol.schema import Message
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records

SHARE_COORDINATOR = 2
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Acknowledgements = Sequence[tuple[int, int, int | list[int]]]
"""First offset, last offset, and what is said of them: one type for all, or one for each."""


def new_member_id() -> str:
    """A UUID as Kafka spells it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


class ShareMember:
    """One member with a connection of its own; its session's epochs are counted unless they are given."""

    def __init__(self, bootstrap: str, group_id: str, topic_id: UUID, member_id: str | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.group_id: str | None = group_id
        self.member_id: str | None = member_id or new_member_id()
        self.topic_id = topic_id
        self.epoch = 0
        self._socket = socket.create_connection((host, int(port)), 30)
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: Message, version: int) -> None:
        self._socket.sendall(b"".join(bytes(piece) for piece in encode_request(request, version, 1, "share")))  # type: ignore[arg-type] # no records in it

    def receive(self, request: Message, version: int) -> Any:
        api_key = type(request).API_KEY
        assert api_key is not None
        size = int.from_bytes(self._take(4), "big")
        return decode_response(api_key, version, self._take(size))[1]

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            part = self._socket.recv(1 << 20)
            if not part:
                raise ConnectionError("the broker has closed the connection")
            self._received += part
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def is_answered(self, seconds: float) -> bool:
        """Whether an answer begins to come in this time; nothing of it is read."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def hears_nothing(self, seconds: float) -> bool:
        """Whether no answer comes in this time."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            self._received += self._socket.recv(1)
        self._socket.settimeout(30)
        return not self._received

    def initialize(self, start_offset: int = 0, partitions: int = 1, state_epoch: int = 0) -> None:
        """Have the group start in the topic here, as its coordinator does when a member comes.

        Asking for the share coordinator makes its topic, which may take a moment: AssertionError.
        """
        key = f"{self.group_id}:{base64.urlsafe_b64encode(self.topic_id.bytes).rstrip(b'=').decode()}:0"
        found = self.ask(FindCoordinatorRequest(key_type=SHARE_COORDINATOR, coordinator_keys=[key]), 6)
        assert found.coordinators[0].error_code == 0, found
        request = InitializeShareGroupStateRequest(
            group_id=self.group_id or "",
            topics=[
                InitializeStateData(
                    topic_id=self.topic_id,
                    partitions=[
                        PartitionToInitialize(partition=number, state_epoch=state_epoch, start_offset=start_offset)
                        for number in range(partitions)
                    ],
                )
            ],
        )
        (result,) = self.ask(request, 0).results
        assert [partition.error_code for partition in result.partitions] == [0] * partitions, result

    def fetch_request(
        self,
        said: Mapping[int, Acknowledgements] | None = None,
        *,
        partitions: Sequence[int] = (0,),
        forgotten: Sequence[int] = (),
        epoch: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        strictly: bool = False,
        renews: bool = False,
    ) -> ShareFetchRequest:
        said = said or {}
        mentioned = list(partitions) if self.epoch == 0 or partitions != (0,) else []
        mentioned += [number for number in said if number not in mentioned]
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=int(strictly),
            is_renew_ack=renews,
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=_types(kind)
                                )
                                for first, last, kind in said.get(number, ())
                            ],
                        )
                        for number in mentioned
                    ],
                )
            ]
            if mentioned
            else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
        )
        if epoch is None:
            self.epoch += 1
        return request

    def fetch(self, said: Mapping[int, Acknowledgements] | None = None, **terms: Any) -> Any:
        """The whole response; see `fetch_request` for the terms."""
        return self.ask(self.fetch_request(said, **terms), 2 if {"strictly", "renews"} & terms.keys() else 1)

    def acquire(self, said: Mapping[int, Acknowledgements] | None = None, **terms: Any) -> list[tuple[int, int, int]]:
        """First offset, last offset and delivery count of what was given from partition 0."""
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for data in _partitions(self.fetch(said, **terms))
            for one in data.acquired_records
        ]

    def acknowledge(
        self, said: Mapping[int, Acknowledgements], *, epoch: int | None = None, renews: bool | None = None
    ) -> Any:
        """In version 2 if `renews` says whether the request renews locks."""
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=bool(renews),
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=number,
                            acknowledgement_batches=[
                                Said(first_offset=first, last_offset=last, acknowledge_types=_types(kind))
                                for first, last, kind in batches
                            ],
                        )
                        for number, batches in said.items()
                    ],
                )
            ]
            if said
            else [],
        )
        if epoch is None:
            self.epoch += 1
        return self.ask(request, 1 if renews is None else 2)

    def say(self, *said: tuple[int, int, int | list[int]]) -> int:
        """Acknowledge records of partition 0; returns the error code."""
        response = self.acknowledge({0: said})
        return int(response.error_code or response.responses[0].partitions[0].error_code)

    def leave(self) -> None:
        """Close the session, as the Java client does when it is closed."""
        assert self.acknowledge({}, epoch=-1).error_code == 0


def _types(kind: int | list[int]) -> list[int]:
    return [kind] if isinstance(kind, int) else kind


def _partitions(response: Any) -> list[Any]:
    assert response.error_code == 0, response
    return [data for topic in response.responses for data in topic.partitions]


def given(response: Any) -> dict[int, list[Record]]:
    """By partition, the records that were acquired, as a client finds them in the batches of a response."""
    found: dict[int, list[Record]] = {}
    for data in _partitions(response):
        held = {offset for one in data.acquired_records for offset in range(one.first_offset, one.last_offset + 1)}
        found[data.partition_index] = [
            record
            for header in iter_batches(data.records)
            if not header.is_control
            for record in decode_records(data.records, header)
            if record.offset in held
        ]
    return found
