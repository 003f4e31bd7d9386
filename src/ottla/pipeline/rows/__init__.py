"""What jobs do with rows, as functions over DataFrames: decode, check, look up, and lose none on the way."""

from ottla.pipeline.rows.checked import Checked, checked, labelled
from ottla.pipeline.rows.decode_avro import from_avro, to_avro
from ottla.pipeline.rows.decode_debezium import from_debezium
from ottla.pipeline.rows.decode_json import from_json
from ottla.pipeline.rows.decode_protobuf import from_protobuf
from ottla.pipeline.rows.duplicates import drop_duplicates
from ottla.pipeline.rows.history import History, Versions, as_of, history
from ottla.pipeline.rows.schema_registry import Registry, RegistryAwayError, RegistryError, SubjectError, registry
from ottla.pipeline.rows.table import Table, table
from ottla.pipeline.rows.watermark import watermark

__all__ = [
    "Checked",
    "History",
    "Registry",
    "RegistryAwayError",
    "RegistryError",
    "SubjectError",
    "Table",
    "Versions",
    "as_of",
    "checked",
    "drop_duplicates",
    "from_avro",
    "from_debezium",
    "from_json",
    "from_protobuf",
    "history",
    "labelled",
    "registry",
    "table",
    "to_avro",
    "watermark",
]
