"""Settings of the change capture from MySQL and MariaDB, by the names of Debezium's connectors."""

from typing import Literal

from ottla.connect.api import CommaList, SecretStr, setting
from ottla.connect.connectors.capture.selection import CaptureSettings


class MysqlSettings(CaptureSettings):
    """Where the server is, what to capture, and how."""

    database_hostname: str = setting("Host of the server.", importance="high")
    database_port: int = setting("Its port.", 3306, ge=1, le=65_535)
    database_user: str = setting(
        "A user with REPLICATION SLAVE, REPLICATION CLIENT, RELOAD and SELECT (MariaDB: BINLOG MONITOR too).",
        importance="high",
    )
    database_password: SecretStr | None = setting("Its password.", None, importance="high")
    database_server_id: int = setting(
        "This reader's number among the server's replicas, unique among them.", 5_400, ge=1, le=4_294_967_295
    )
    database_include_list: CommaList = setting("Databases to capture; empty: all.", default_factory=list)
    database_ssl_mode: Literal["disabled", "required"] = setting("Whether the connection is encrypted.", "disabled")
    snapshot_mode: Literal["initial", "initial_only", "always", "no_data", "never", "when_needed"] = setting(
        "Whether tables are read before their changes: once (initial), and no more (initial_only), at each start "
        "(always), not at all (no_data), or when there is no way to go on (when_needed).",
        "initial",
        importance="high",
    )
    snapshot_fetch_size: int = setting("Rows fetched at once by a snapshot.", 10_240, ge=1)
    bigint_unsigned_handling_mode: Literal["long", "precise"] = setting(
        "BIGINT UNSIGNED as an int64, which is too short for half of them, or as a Decimal.", "long"
    )
    skipped_operations: CommaList = setting(
        "Operations left out: c, u and d, with commas, or none.", default_factory=lambda: ["none"]
    )
