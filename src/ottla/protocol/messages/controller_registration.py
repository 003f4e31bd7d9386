"""ControllerRegistration: a controller registers its addresses and features with the active one (KIP-919)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, UInt16
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.CONTROLLER_REGISTRATION, versions=(0, 0), flexible=0)
class ControllerRegistrationRequest(Message):
    controller_id: Int32
    incarnation_id: UUID
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]


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


@message(ApiKey.CONTROLLER_REGISTRATION, versions=(0, 0), flexible=0)
class ControllerRegistrationResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
