"""Where rows go: tables, files, databases, the console. A topic is an input and a sink (`ottla.pipeline.topic`).

Each row is written exactly once, also when Spark repeats a micro-batch. None of the packages that a sink needs is
imported before the sink is used.
"""

from ottla.pipeline.sinks.base import Compactable, Sink, SinkError
from ottla.pipeline.sinks.console_sink import console
from ottla.pipeline.sinks.database_table import database
from ottla.pipeline.sinks.delta_table import delta
from ottla.pipeline.sinks.each_batch import each_batch
from ottla.pipeline.sinks.iceberg_table import iceberg
from ottla.pipeline.sinks.parquet_files import parquet

__all__ = ["Compactable", "Sink", "SinkError", "console", "database", "delta", "each_batch", "iceberg", "parquet"]
