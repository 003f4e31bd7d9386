"""The data pipeline on Spark: a source and sink for topics without a jar, and the jobs built on it.

    from ottla.pipeline import Job, captured, files, history, table, topic

A satellite: it talks to a broker through confluent-kafka and works against any broker that speaks Kafka's protocol.
What a job file needs is here, and imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.pipeline.inputs import files, topic
    from ottla.pipeline.job import Job
    from ottla.pipeline.rows.captured import captured
    from ottla.pipeline.rows.history import history
    from ottla.pipeline.rows.table import table

__all__ = ["Job", "captured", "files", "history", "table", "topic"]

_WHERE: Final = {
    "Job": "job",
    "captured": "rows.captured",
    "files": "inputs",
    "history": "rows.history",
    "table": "rows.table",
    "topic": "inputs",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
