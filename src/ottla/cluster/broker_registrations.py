"""PURE. The active controller's decisions on registrations of brokers and controllers: a request in, a record out.

A broker registers when it starts, and then heartbeats in the epoch it got. Its registration stays when it is gone.
While a broker is alive, no other process can register with its number. Source: KIP-631, KIP-858, KIP-919, KIP-966;
Kafka 4.3, `ClusterControlManager`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.metadata_log.levels import DIRECTORIES_SINCE
from ottla.cluster.metadata_log.registrations import SECURITY_PROTOCOLS, BrokerRegistration
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

FIRST_METADATA_VERSION: Final = 1
"""What a node supports that names no `metadata.version`."""
RESERVED_DIRECTORIES: Final = 100
"""Ids of directories below this one have a meaning of their own (KIP-858)."""
MOST_LISTENERS: Final = 128
MOST_FEATURES: Final = 512
MOST_DIRECTORIES: Final = 1024
LONGEST_TEXT: Final = 1024
MOST_TEXT: Final = 8 << 10
"""Bounds of what one registration adds to the log, and to the memory of every node, for good; texts in characters."""
MOST_BROKERS: Final = 10_000
MOST_CONTROLLERS: Final = 1_000
"""Registrations stay when their nodes are gone: without a bound, a stranger at an open listener of the
controllers could fill the memory of every node."""
SET: Final = 1
CLEAR: Final = -1


class _Feature(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


class _Listener(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


def plan_registration(
    cluster_id: str,
    brokers: Mapping[int, BrokerRegistration],
    features: Mapping[str, int],
    request: BrokerRegistrationRequest,
    *,
    is_alive: bool,
    epoch: int,
) -> RegisterBrokerRecord:
    """Register a broker, or amend the registration of the same process.

    `features` are the finalized levels, `is_alive` whether a broker of this number has a session, `epoch` the offset
    that the record will have.

    Raises `ApiError`: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED (a broker that
    comes from ZooKeeper), INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    broker_id = request.broker_id
    if request.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {_short(request.cluster_id)}",
        )
    if broker_id < 0:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"a broker cannot have the number {broker_id}")
    known = brokers.get(broker_id)
    if known is None and len(brokers) >= MOST_BROKERS:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"{len(brokers)} brokers are registered, and there is room for no other: unregister those that are gone "
            "(kafka-cluster.sh unregister), and see whether strangers reach the controllers' listener",
        )
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    if is_alive and not is_same:
        raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id.")
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    _check_size(request)
    has_directories = features.get(METADATA_VERSION, FIRST_METADATA_VERSION) >= DIRECTORIES_SINCE
    if has_directories:
        _check_directories(brokers, broker_id, request.log_dirs)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=_end_points(request.listeners),
        features=_supported(f"broker {broker_id}", features, request.features),
        rack=None if request.rack is None else _checked_text("the rack", request.rack),
        log_dirs=list(request.log_dirs) if has_directories else [],
    )
    if known is not None and is_same:
        record.fenced, record.in_controlled_shutdown = known.fenced, known.in_controlled_shutdown
        record.broker_epoch = known.epoch
        record.cordoned_log_dirs = None if known.cordoned is None else list(known.cordoned)
    return record


def plan_controller(
    known: Collection[int], features: Mapping[str, int], request: ControllerRegistrationRequest
) -> RegisterControllerRecord:
    """Register a controller beside the `known` ones. Raises `ApiError`: INVALID_REGISTRATION, UNSUPPORTED_VERSION."""
    if request.controller_id < 0:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"a controller cannot have the number {request.controller_id}")
    if request.controller_id not in known and len(known) >= MOST_CONTROLLERS:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"{len(known)} controllers are registered, and there is room for no other: see whether strangers reach the "
            "controllers' listener",
        )
    _check_size(request)
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=_end_points(request.listeners),
        features=_supported(f"controller {request.controller_id}", features, request.features),
    )


def check_epoch(brokers: Mapping[int, BrokerRegistration], broker_id: int, epoch: int) -> BrokerRegistration:
    """The registration in whose name a request comes. Raises `ApiError` STALE_BROKER_EPOCH."""
    known = brokers.get(broker_id)
    if known is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if known.epoch != epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {known.epoch}, but got broker epoch {epoch}"
        )
    return known


def fencing(broker: BrokerRegistration, *, fenced: bool) -> BrokerRegistrationChangeRecord:
    """Fence a broker, or let it lead."""
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=SET if fenced else CLEAR
    )


def stopping(broker: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    """Begin a broker's controlled shutdown."""
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=SET
    )


def changed_directories(
    broker: BrokerRegistration, offline: Sequence[UUID], cordoned: Sequence[UUID] | None
) -> BrokerRegistrationChangeRecord | None:
    """The change of log directories that a heartbeat reports; None if it is known.

    Directories of other brokers are passed over.
    """
    gone = set(offline) & set(broker.directories)
    record = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    if gone:
        record.log_dirs = [directory for directory in broker.directories if directory not in gone]
    if cordoned is not None:
        wanted = sorted(set(cordoned) & set(broker.directories))
        if wanted != sorted(broker.cordoned or ()):
            record.cordoned_log_dirs = wanted
    return record if record.log_dirs or record.cordoned_log_dirs is not None else None


def _check_directories(brokers: Mapping[int, BrokerRegistration], broker_id: int, directories: Sequence[UUID]) -> None:
    problem = None
    if not directories:
        problem = "No directories specified in request"
    elif len(directories) > MOST_DIRECTORIES:
        problem = f"{len(directories)} directories in request; {MOST_DIRECTORIES} are allowed"
    elif any(directory.int < RESERVED_DIRECTORIES for directory in directories):
        problem = "Reserved directory ID in request"
    elif len(set(directories)) < len(directories):
        problem = "Duplicate directory ID in request"
    else:
        wanted = set(directories)
        for other in brokers.values():
            shared = wanted.intersection(other.directories) if other.broker_id != broker_id else None
            if shared:
                problem = f"Broker {other.broker_id} is already registered with directory {min(shared)}"
                break
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def _end_points(listeners: Sequence[_Listener]) -> list[Endpoint]:
    if len(listeners) > MOST_LISTENERS:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION, f"{len(listeners)} listeners in request; {MOST_LISTENERS} are allowed"
        )
    found: dict[str, Endpoint] = {}
    for listener in listeners:
        name = _checked_text("the name of a listener", listener.name)
        if name in found:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"Found multiple listeners with name {name}")
        if not listener.port:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"listener {name} has no port")
        if listener.security_protocol not in SECURITY_PROTOCOLS:
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"listener {name} has an unknown security protocol: {listener.security_protocol}",
            )
        host = _checked_text("the host of a listener", listener.host)
        found[name] = Endpoint(name=name, host=host, port=listener.port, security_protocol=listener.security_protocol)
    return list(found.values())


def _supported(node: str, finalized: Mapping[str, int], features: Sequence[_Feature]) -> list[FeatureRange]:
    """The ranges of a node's features. Raises `ApiError` unless each finalized level is in them."""
    if len(features) > MOST_FEATURES:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION, f"{len(features)} features in request; {MOST_FEATURES} are allowed"
        )
    found: dict[str, FeatureRange] = {}
    for feature in features:
        name = _checked_text("the name of a feature", feature.name)
        if name in found:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"feature {name} is there twice")
        found[name] = FeatureRange(
            name=name,
            min_supported_version=feature.min_supported_version,
            max_supported_version=feature.max_supported_version,
        )
    if METADATA_VERSION not in found:
        found[METADATA_VERSION] = FeatureRange(
            name=METADATA_VERSION,
            min_supported_version=FIRST_METADATA_VERSION,
            max_supported_version=FIRST_METADATA_VERSION,
        )
    nothing = FeatureRange(name="", min_supported_version=0, max_supported_version=0)
    for name in [*found, *(name for name in finalized if name not in found)]:
        supported = found.get(name, nothing)
        level = finalized.get(name, FIRST_METADATA_VERSION if name == METADATA_VERSION else 0)
        if not supported.min_supported_version <= level <= supported.max_supported_version:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because {node} does not support finalized version {level} of {name}. It wants a "
                f"version between {supported.min_supported_version} and {supported.max_supported_version}, inclusive.",
            )
    return list(found.values())


def _check_size(request: BrokerRegistrationRequest | ControllerRegistrationRequest) -> None:
    size = sum(len(each.name) + len(each.host) for each in request.listeners)
    size += sum(len(each.name) for each in request.features)
    if size > MOST_TEXT:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"listeners and features have {size} characters together; {MOST_TEXT} are allowed",
        )


def _checked_text(what: str, text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"{what} has {len(text)} characters; {LONGEST_TEXT} are allowed")
    return text


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
