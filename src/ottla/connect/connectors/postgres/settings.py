"""Settings of the change capture from PostgreSQL, by the names of Debezium's connector."""

import re
from typing import Final, Literal

from pydantic import field_validator, model_validator

from ottla.connect.api import SecretStr, setting
from ottla.connect.connectors.capture.selection import CaptureSettings
from ottla.connect.settings import Expressions

_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")


class PostgresSettings(CaptureSettings):
    """Where the database is, what to capture, and how."""

    database_hostname: str = setting("Host of the PostgreSQL server.", importance="high")
    database_port: int = setting("Its port.", 5432, ge=1, le=65_535)
    database_user: str = setting("A role with the attribute REPLICATION that may read the tables.", importance="high")
    database_password: SecretStr | None = setting("Its password.", None, importance="high")
    database_dbname: str = setting("The database whose changes are captured.", importance="high")
    database_sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = setting(
        "How the connection is encrypted, as libpq's sslmode.", "prefer"
    )
    database_sslrootcert: str = setting("File with the certificates that the server's is checked against.", "")
    plugin_name: Literal["pgoutput"] = setting("The output plugin; every server has pgoutput.", "pgoutput")
    slot_name: str = setting("The replication slot, made if it is not there; one for each connector.", "debezium")
    slot_drop_on_stop: bool = setting(
        "Whether the slot is dropped when the task ends: for tests, for what changes meanwhile is lost.", False
    )
    slot_lag_warn_bytes: int = setting(
        "Bytes of WAL retained by the slot above which the status reports it.", 1 << 30, ge=1
    )
    slot_lag_drop_bytes: int = setting(
        "Bytes of WAL held back by the slot at which it is dropped and the task fails; 0: never.", 0, ge=0
    )
    xmin_fetch_interval_ms: int = setting(
        "Milliseconds between looks at the slot's xmin for source.xmin; 0: it is null.", 0, ge=0
    )
    publication_name: str = setting("The publication, made if it is not there.", "dbz_publication")
    publication_autocreate_mode: Literal["all_tables", "filtered", "disabled"] = setting(
        "Whether the publication that is made has all tables, those that are captured, or has to be there.",
        "all_tables",
    )
    publish_via_partition_root: bool = setting(
        "Whether a created publication publishes changes of partitions under the partitioned table.", False
    )
    signal_data_collection: str = setting(
        "schema.table of the table whose new rows (id, type, data) are signals, such as execute-snapshot.", ""
    )
    schema_include_list: Expressions = setting(
        "Regular expressions for the names of the schemas to capture; empty: all.", default_factory=list
    )
    schema_exclude_list: Expressions = setting(
        "Regular expressions for the schemas not to capture; not together with schema.include.list.",
        default_factory=list,
    )
    message_prefix_include_list: Expressions = setting(
        "Regular expressions for the prefixes of the logical messages to capture; empty: all.", default_factory=list
    )
    message_prefix_exclude_list: Expressions = setting(
        "Regular expressions for the prefixes of the logical messages not to capture.", default_factory=list
    )
    interval_handling_mode: Literal["numeric", "string"] = setting(
        "Intervals as microseconds, which is near, or as texts of ISO 8601.", "numeric"
    )

    @field_validator("slot_name")
    @classmethod
    def _slot(cls, name: str) -> str:
        if _SLOT_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a slot: up to 63 of a-z, 0-9 and underscores")
        return name

    @model_validator(mode="after")
    def _one_list_of_schemas_and_prefixes(self) -> "PostgresSettings":
        for kind in ("schema", "message_prefix"):
            if getattr(self, f"{kind}_include_list") and getattr(self, f"{kind}_exclude_list"):
                name = kind.replace("_", ".")
                raise ValueError(f"{name}.include.list and {name}.exclude.list exclude each other: set one of them")
        return self

    @field_validator("skipped_operations")
    @classmethod
    def _operations(cls, operations: list[str]) -> list[str]:
        unknown = [each for each in operations if each not in ("c", "u", "d", "t", "none")]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of c, u, d, t and none")
        return operations
