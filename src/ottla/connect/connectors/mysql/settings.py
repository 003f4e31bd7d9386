"""Settings of the change capture from MySQL and MariaDB, by the names of Debezium's connectors."""

import zlib
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, field_validator

from ottla.connect.api import CommaList, SecretStr, setting
from ottla.connect.connectors.capture.selection import CaptureSettings
from ottla.connect.settings import Expressions

_FIRST_SERVER_ID: Final = 10_000
"""The first of the generated server ids: people give small ones to their servers."""
_MOST_SERVER_ID: Final = 4_294_967_295


def _lower(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


WatermarkingStrategy = Annotated[Literal["insert_insert", "insert_delete"], BeforeValidator(_lower)]


class MysqlSettings(CaptureSettings):
    """Where the server is, what to capture, and how."""

    database_hostname: str = setting("Host of the server.", importance="high")
    database_port: int = setting("Its port.", 3306, ge=1, le=65_535)
    database_user: str = setting(
        "A user with REPLICATION SLAVE, REPLICATION CLIENT, RELOAD and SELECT (MariaDB: BINLOG MONITOR too).",
        importance="high",
    )
    database_password: SecretStr | None = setting("Its password.", None, importance="high")
    database_server_id: int | None = setting(
        "This reader's number among the server's replicas: the server ends the stream of an earlier reader with the "
        "same number. "
        "Empty: one of its own, by topic.prefix.",
        None,
        ge=1,
        le=_MOST_SERVER_ID,
    )
    database_include_list: Expressions = setting(
        "Regular expressions for the names of the databases to capture; empty: all.", default_factory=list
    )
    database_ssl_mode: Literal["disabled", "required"] = setting("Whether the connection is encrypted.", "disabled")
    incremental_snapshot_watermarking_strategy: WatermarkingStrategy = setting(
        "How a chunk's end is marked in the signal table: by a second row (insert_insert), or by deleting the row of "
        "its start (insert_delete), so that none stay.",
        "insert_insert",
    )
    signal_data_collection: str = setting(
        "database.table of the table whose new rows (id, type, data) are signals, such as execute-snapshot; marks of "
        "chunks go there too.",
        "",
    )
    bigint_unsigned_handling_mode: Literal["long", "precise"] = setting(
        "BIGINT UNSIGNED as an int64, which is too short for half of them, or as a Decimal.", "long"
    )
    skipped_operations: CommaList = setting(
        "Operations left out: c, u and d, with commas, or none.", default_factory=lambda: ["none"]
    )

    @property
    def replica_id(self) -> int:
        """The reader's number among the replicas, always the same one: a stream that hangs is ended by the next."""
        if self.database_server_id is not None:
            return self.database_server_id
        return _FIRST_SERVER_ID + zlib.crc32(self.topic_prefix.encode()) % (_MOST_SERVER_ID - _FIRST_SERVER_ID)

    @field_validator("signal_data_collection")
    @classmethod
    def _signals(cls, name: str) -> str:
        if name and name.count(".") != 1:
            raise ValueError(f"{name!r} is not of the form database.table")
        return name
