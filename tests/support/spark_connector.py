"""Spark's own Kafka connector (`format("kafka")`), fetched once by Maven into `.cache/`."""

from pathlib import Path
from typing import Final

from tests.support.genuine import maven_libs

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RECIPE: Final = _REPOSITORY / "benches" / "genuine" / "spark-connector.xml"
_CACHE: Final = _REPOSITORY / ".cache" / "spark-connector"


def connector_settings() -> dict[str, str]:
    """Settings of a session in which Spark's own source and sink are there, beside `ottla`.

    Raises:
        MissingProgramError: Java or Maven is missing.
        ToolFailedError: Maven could not fetch the jars.
    """
    jars = sorted(maven_libs(_RECIPE, _CACHE).glob("*.jar"))
    class_path = ":".join(map(str, jars))
    return {"spark.driver.extraClassPath": class_path, "spark.executor.extraClassPath": class_path}
