"""What jobs do with rows, as functions over DataFrames: decode, check, look up, and lose none on the way.

Modules are imported when they are first asked for: what reads dead letters needs no Spark.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.pipeline.rows.checked import Checked, checked, labelled
    from ottla.pipeline.rows.decode_avro import from_avro, to_avro
    from ottla.pipeline.rows.decode_debezium import from_debezium
    from ottla.pipeline.rows.decode_json import from_json
    from ottla.pipeline.rows.decode_protobuf import from_protobuf
    from ottla.pipeline.rows.duplicates import drop_duplicates
    from ottla.pipeline.rows.history import History, Versions, as_of, history
    from ottla.pipeline.rows.table import Table, table
    from ottla.pipeline.rows.traces import trace_headers
    from ottla.pipeline.rows.watermark import watermark
    from ottla.registry.client import Registry, RegistryAwayError, RegistryError, SubjectError, registry

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
    "trace_headers",
    "watermark",
]

_WHERE: Final = {
    "Checked": "ottla.pipeline.rows.checked",
    "History": "ottla.pipeline.rows.history",
    "Registry": "ottla.registry.client",
    "RegistryAwayError": "ottla.registry.client",
    "RegistryError": "ottla.registry.client",
    "SubjectError": "ottla.registry.client",
    "Table": "ottla.pipeline.rows.table",
    "Versions": "ottla.pipeline.rows.history",
    "as_of": "ottla.pipeline.rows.history",
    "checked": "ottla.pipeline.rows.checked",
    "drop_duplicates": "ottla.pipeline.rows.duplicates",
    "from_avro": "ottla.pipeline.rows.decode_avro",
    "from_debezium": "ottla.pipeline.rows.decode_debezium",
    "from_json": "ottla.pipeline.rows.decode_json",
    "from_protobuf": "ottla.pipeline.rows.decode_protobuf",
    "history": "ottla.pipeline.rows.history",
    "labelled": "ottla.pipeline.rows.checked",
    "registry": "ottla.registry.client",
    "table": "ottla.pipeline.rows.table",
    "to_avro": "ottla.pipeline.rows.decode_avro",
    "trace_headers": "ottla.pipeline.rows.traces",
    "watermark": "ottla.pipeline.rows.watermark",
}


class _Rows(ModuleType):
    """This package. Some functions have the name of their module, which the import of that module must not take."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Rows


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
