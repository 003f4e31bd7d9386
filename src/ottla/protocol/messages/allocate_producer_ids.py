"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, message


@message(ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1


@message(ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64
    producer_id_len: Int32
