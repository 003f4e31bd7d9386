"""The query that is killed: a topic copied to another, in a driver of its own.

    python -m tests.pipeline.kills.driver '{"master": "spark://...", ...}'

Never ends by itself. A query that fails is started again, as its operator would.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline import class_archive, session
from ottla.pipeline.java import find_java
from ottla.spark import register

_REPOSITORY = Path(__file__).resolve().parents[3]
_EXECUTOR_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.net.preferIPv4Stack=true"


def settings(given: dict[str, Any]) -> dict[str, str]:
    """Spark's: tasks may fail as often as they are killed, and what is dead is noticed soon."""
    archive = class_archive.jvm_options(find_java())
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join((_EXECUTOR_JVM, *archive)),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join((str(_REPOSITORY / "src"), str(_REPOSITORY))),
        "spark.task.maxFailures": "1000",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.excludeOnFailure.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "20s",
        **given["settings"],
    }


def start(spark: SparkSession, given: dict[str, Any]) -> StreamingQuery:
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given["max_offsets"])
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("topic", given["sink"])
        .option("deliveryGuarantee", given["guarantee"])
        .option("checkpointLocation", given["checkpoint"])
        .start()
    )


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    directory = Path(given["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    session.launch("kills", directory, master=given["master"], settings=settings(given))
    spark = session.open_session()
    register(spark)
    while True:
        try:
            start(spark, given).awaitTermination()
        except StreamingQueryException as error:
            print(f"the query failed and is started again: {error}", flush=True)


if __name__ == "__main__":
    main()
