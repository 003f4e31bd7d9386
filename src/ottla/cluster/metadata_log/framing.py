"""PURE. Records in the version that genuine Kafka writes them in at a level of `metadata.version`.

Source: Kafka 4.3, `MetadataVersion`, and where its controller makes each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.cluster.metadata_log.levels import (
    CONTROLLER_REGISTRATIONS_SINCE,
    CORDONED_SINCE,
    DELEGATION_TOKENS_SINCE,
    DIRECTORIES_SINCE,
    LOWEST,
    NAMES,
    SCRAM_SINCE,
    TRANSACTIONS_SINCE,
    record_versions,
)
from ottla.cluster.metadata_log.settings import InexpressibleChange
from ottla.protocol import metadata_records as records
from ottla.protocol.metadata_records import encode_record
from ottla.protocol.schema import Message

_SINCE: Final[Mapping[type[Message], int]] = MappingProxyType(
    {
        records.UserScramCredentialRecord: SCRAM_SINCE,
        records.RemoveUserScramCredentialRecord: SCRAM_SINCE,
        records.BeginTransactionRecord: TRANSACTIONS_SINCE,
        records.EndTransactionRecord: TRANSACTIONS_SINCE,
        records.AbortTransactionRecord: TRANSACTIONS_SINCE,
        records.DelegationTokenRecord: DELEGATION_TOKENS_SINCE,
        records.RemoveDelegationTokenRecord: DELEGATION_TOKENS_SINCE,
        records.RegisterControllerRecord: CONTROLLER_REGISTRATIONS_SINCE,
    }
)
_CHANGE_SINCE: Final = (LOWEST, LOWEST, DIRECTORIES_SINCE, CORDONED_SINCE)
"""For each version of BrokerRegistrationChange."""


def framed(record: Message, level: int) -> bytes:
    """The record as it stands in the log at a level of `metadata.version`.

    Raises `InexpressibleChange` for one that the level does not have.
    """
    match record:
        case records.PartitionRecord() | records.PartitionChangeRecord():
            version = record_versions(level).partition
        case records.RegisterBrokerRecord():
            version = record_versions(level).register_broker
        case records.BrokerRegistrationChangeRecord():
            version = _change_version(record)
            _check(record, level, _CHANGE_SINCE[version])
        case _:
            version = 0
            _check(record, level, _SINCE.get(type(record), LOWEST))
    return encode_record(record, version)


def _change_version(record: records.BrokerRegistrationChangeRecord) -> int:
    """The lowest that can carry it, as in Kafka."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def _check(record: Message, level: int, since: int) -> None:
    if level < since:
        raise InexpressibleChange(
            f"the metadata log has no {type(record).__name__} of this kind before metadata.version {NAMES[since]}, and "
            f"the cluster is at {NAMES.get(level, level)}: raise it first"
        )
