"""What jobs do with rows, as functions over DataFrames: decode, check, look up, and lose none on the way.

Modules are imported when they are first asked for: what reads dead letters needs no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_WHERE: Final = {
    "Checked": "checked",
    "History": "history",
    "Registry": "schema_registry",
    "RegistryAwayError": "schema_registry",
    "RegistryError": "schema_registry",
    "SubjectError": "schema_registry",
    "Table": "table",
    "Versions": "history",
    "as_of": "history",
    "checked": "checked",
    "drop_duplicates": "duplicates",
    "from_avro": "decode_avro",
    "from_debezium": "decode_debezium",
    "from_json": "decode_json",
    "from_protobuf": "decode_protobuf",
    "history": "history",
    "labelled": "checked",
    "registry": "schema_registry",
    "table": "table",
    "to_avro": "decode_avro",
    "watermark": "watermark",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
