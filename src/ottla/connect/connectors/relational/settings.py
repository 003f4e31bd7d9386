"""Settings of the relational source and sink, by the names of Confluent's JDBC connectors."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from ottla.connect.api import CommaList, SecretStr, Settings, setting


class DatabaseSettings(Settings):
    """Where the database is."""

    connection_url: str = setting(
        "SQLAlchemy's URL (postgresql+psycopg2://user@host/name, mysql+pymysql://..., sqlite:////file.db); "
        "JDBC's of PostgreSQL, MySQL, MariaDB and SQLite are understood too.",
        importance="high",
    )
    connection_user: str = setting("User of the database, if it is not in the URL.", "")
    connection_password: SecretStr | None = setting("Password, if it is not in the URL.", None)


class SinkSettings(DatabaseSettings):
    """Which rows go where, and how."""

    insert_mode: Literal["insert", "upsert", "update"] = setting(
        "Add rows, put them in the place of those with the same key, or change those alone.",
        "insert",
        importance="high",
    )
    pk_mode: Literal["none", "kafka", "record_key", "record_value"] = setting(
        "Where the primary key comes from: topic, partition and offset (kafka), or the record.",
        "none",
        importance="high",
    )
    pk_fields: CommaList = setting(
        "Columns of the primary key; empty: all fields of a key that is a struct.", default_factory=list
    )
    delete_enabled: bool = setting("Whether a null value deletes the row of its key; needs pk.mode=record_key.", False)
    table_name_format: str = setting(
        "Name of the table, with ${topic} for the topic's; schema.table names both.", "${topic}"
    )
    fields_whitelist: CommaList = setting("Fields of values that are written; empty: all.", default_factory=list)
    auto_create: bool = setting("Whether missing tables are made, by the schema of the first record.", False)
    auto_evolve: bool = setting("Whether columns are added for fields that the table does not have.", False)
    batch_size: int = setting(
        "Most records in one transaction of the database; without an offset.table all that come at once are in one.",
        10_000,
        ge=1,
    )
    offset_table: str = setting(
        "Table beside the others in which the offsets are kept, in the transactions of the rows; "
        "empty: none, and rows may come twice after a crash.",
        "ottla_offsets",
    )

    unavailable_value_placeholder: str = setting(
        "What stands in a change event for a value that the database did not send: its column stays as it is.",
        "__debezium_unavailable_value",
    )

    @model_validator(mode="after")
    def _fits(self) -> "SinkSettings":
        if self.delete_enabled and self.pk_mode != "record_key":
            raise ValueError("delete.enabled needs pk.mode=record_key: a null has no other key")
        if self.insert_mode != "insert" and self.pk_mode == "none":
            raise ValueError(f"insert.mode={self.insert_mode} needs a key: set pk.mode to record_key or record_value")
        if self.pk_mode == "kafka" and len(self.pk_fields) not in (0, 3):
            raise ValueError("pk.mode=kafka has three pk.fields: of the topic, the partition and the offset")
        return self


class SourceSettings(DatabaseSettings):
    """Which tables are read, and how new rows are known."""

    mode: Literal["bulk", "incrementing", "timestamp", "timestamp+incrementing"] = setting(
        "Whole tables each time (bulk), or rows that are new by a number that grows, by a time of change, or by both.",
        importance="high",
    )
    incrementing_column_name: str = setting("Column whose number grows with each new row.", "")
    timestamp_column_name: CommaList = setting(
        "Columns with the time of the last change: the first that is not null counts.", default_factory=list
    )
    table_whitelist: CommaList = setting(
        "Tables to read (schema.table or table).", default_factory=list, importance="high"
    )
    table_blacklist: CommaList = setting("Tables not to read, of all there are.", default_factory=list)
    catalog_schema: str = setting(
        "Schema of the tables named without one; empty: the database's own.", "", name="schema.pattern"
    )
    query: str = setting("A query to read instead of tables; its rows go to the topic topic.prefix.", "")
    poll_interval_ms: int = setting("Milliseconds between two looks.", 5_000, ge=1)
    batch_max_rows: int = setting("Most rows handed on at once.", 1_000, ge=1)
    topic_prefix: str = setting("Topics are called prefix and table.", importance="high")
    timestamp_delay_interval_ms: int = setting(
        "Milliseconds to wait after a row's time, for transactions that commit late.", 0, ge=0
    )
    key_columns: CommaList = setting("Columns of records' keys; empty: the primary key.", default_factory=list)

    @field_validator("mode", mode="before")
    @classmethod
    def _lower(cls, mode: Any) -> Any:
        return mode.lower() if isinstance(mode, str) else mode

    @model_validator(mode="after")
    def _fits(self) -> "SourceSettings":
        if "incrementing" in self.mode and not self.incrementing_column_name:
            raise ValueError(f"mode={self.mode} needs incrementing.column.name")
        if "timestamp" in self.mode and not self.timestamp_column_name:
            raise ValueError(f"mode={self.mode} needs timestamp.column.name")
        if self.query and (self.table_whitelist or self.table_blacklist):
            raise ValueError("query takes the place of table.whitelist and table.blacklist: set one of them")
        return self
