"""Makes the format `ottla` known to every Spark session, without a call.

Spark looks for installed packages whose names begin with `pyspark_` and registers the class `DefaultSource` in them.
"""

from ottla.spark import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
