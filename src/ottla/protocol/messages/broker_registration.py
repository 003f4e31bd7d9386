"""BrokerRegistration: a broker that starts registers with the active controller, which gives it an epoch (KIP-631).

v1 brokers that come from ZooKeeper (KIP-866), v2 log directories (KIP-858), v3 the epoch before a clean shutdown
(KIP-966), v4 features from level 0 on (KIP-584).
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.BROKER_REGISTRATION, versions=(0, 4), flexible=0)
class BrokerRegistrationRequest(Message):
    broker_id: Int32
    cluster_id: str
    incarnation_id: UUID
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool = since(1, default=False)
    log_dirs: list[UUID] = since(2, default_factory=list, ignorable=True)
    previous_broker_epoch: Int64 = since(3, default=-1, ignorable=True)


@struct
class Listener(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@struct
class Feature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(ApiKey.BROKER_REGISTRATION, versions=(0, 4), flexible=0)
class BrokerRegistrationResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
