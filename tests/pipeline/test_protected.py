"""Reading and writing over TLS with logins and access rules: Spark's own options, tokens for tasks, hidden secrets."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_java_truststore
from cryptography.x509 import load_pem_x509_certificate
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.admin import Admin
from ottla.spark import cluster_options, delegation
from ottla.spark.client_settings import as_settings
from ottla.spark.options import ReadOptions
from ottla.spark.reader import BatchReader, RangePartition
from ottla.spark.schema import read_schema
from ottla.testing import Broker
from tests.pipeline.run_process import CommandLine

PASSWORD = "looking glass 42"
STORE_PASSWORD = "changeit 43"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
RIGHTS = {
    "reader": ["read topic orders"],
    "writer": [
        "write topic copies*",
        "read topic copies*",  # the marks of exactly-once are offsets of the topic
        "write transactional-id ottla-spark-*",
        "read group ottla-spark-*",
    ],
    "stranger": ["read topic others"],
}
RECORDS = 500


@pytest.fixture(scope="module")
def protected() -> Iterator[Broker]:
    users = dict.fromkeys(RIGHTS, PASSWORD)
    config = {"delegation.token.secret.key": "a secret of tests"}
    with Broker(tls=True, users=users, acls=RIGHTS, config=config) as broker:
        producer = Producer(broker.client_config("admin"))
        for topic in ("orders", "copies-1", "copies-2", "copies-3"):
            producer.produce(topic, b"")
            producer.flush(30)
        for number in range(1, RECORDS):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        yield broker


@pytest.fixture(scope="module")
def trust(protected: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority as keytool keeps it."""
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate

    pem = Path(protected.client_config("reader")["ssl.ca.location"]).read_bytes()
    entry = PKCS12Certificate(load_pem_x509_certificate(pem), b"authority")
    path = tmp_path_factory.mktemp("trust") / "trust.p12"
    path.write_bytes(serialize_java_truststore([entry], BestAvailableEncryption(STORE_PASSWORD.encode())))
    return path


def options(broker: Broker, trust: Path, user: str, **more: str) -> dict[str, str]:
    """As for Spark's own connector."""
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULE} required username="{user}" password="{PASSWORD}";',
        "kafka.ssl.truststore.location": str(trust),
        "kafka.ssl.truststore.password": STORE_PASSWORD,
        "kafka.ssl.truststore.type": "PKCS12",
        **more,
    }


def count(broker: Broker, topic: str) -> int:
    """The records of a topic that readers of committed records see, without the first."""
    consumer = Consumer({**broker.client_config("admin"), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = 0
    while found < RECORDS + 1 and (message := consumer.poll(10)) is not None:
        found += message.error() is None
    consumer.close()
    return found - 1


def copy(spark: SparkSession, source: dict[str, str], sink: dict[str, str], topic: str, checkpoint: Path) -> Any:
    rows = spark.readStream.format("ottla").options(**source, subscribe="orders", startingOffsets="earliest").load()
    writer = rows.select("value").writeStream.format("ottla").options(**sink, topic=topic)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_both_connectors_read_with_the_same_options(spark: SparkSession, protected: Broker, trust: Path) -> None:
    given = options(protected, trust, "reader", subscribe="orders")
    ours, theirs = (spark.read.format(name).options(**given).load() for name in ("ottla", "kafka"))
    assert ours.select("value").collect() == theirs.select("value").collect()


def test_exactly_once_with_the_rights_that_are_documented_and_nothing_shown(
    spark: SparkSession, protected: Broker, trust: Path, tmp_path: Path
) -> None:
    reading, writing = (options(protected, trust, user) for user in ("reader", "writer"))
    query = copy(spark, reading, writing, "copies-1", tmp_path)
    assert count(protected, "copies-1") == RECORDS
    table = spark.read.format("ottla").options(**reading, subscribe="orders").load()
    assert table.count() == RECORDS
    shown = [
        table._jdf.queryExecution().toString(),
        str(query.recentProgress),
        query._jsq.explainInternal(True),
        *(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()),
    ]
    for text in shown:
        assert PASSWORD not in text
        assert STORE_PASSWORD not in text


def test_tasks_log_in_with_a_token_of_the_driver(
    spark: SparkSession, protected: Broker, trust: Path, tmp_path: Path
) -> None:
    tokens = {"delegationTokens": "true"}
    reading, writing = (options(protected, trust, user, **tokens) for user in ("reader", "writer"))
    copy(spark, reading, writing, "copies-2", tmp_path)
    assert count(protected, "copies-2") == RECORDS
    assert spark.read.format("ottla").options(**reading, subscribe="orders").load().count() == RECORDS


def test_refusals_are_sentences_without_secrets(spark: SparkSession, protected: Broker, trust: Path) -> None:
    right = options(protected, trust, "stranger", subscribe="orders")
    line = right["kafka.sasl.jaas.config"]
    for changed, sentence in (
        ({}, "orders"),
        ({"kafka.sasl.jaas.config": line.replace(PASSWORD, "wrong 44")}, "does not authenticate this client"),
        ({"kafka.ssl.truststore.password": "wrong 44"}, "is ssl.truststore.password the right one"),
        ({"kafka.sasl.jaas.config": "wrong 44"}, "is not a JAAS configuration"),
    ):
        with pytest.raises(PySparkException, match=sentence) as refused:
            spark.read.format("ottla").options(**{**right, **changed}).load().collect()
        for secret in (PASSWORD, STORE_PASSWORD, "wrong 44"):
            assert secret not in str(refused.value)


def test_the_driver_keeps_one_token_and_sends_no_password(protected: Broker, tmp_path: Path) -> None:
    client = as_settings(protected.client_config("reader"))
    given = {f"kafka.{name}": value for name, value in client}
    read = ReadOptions.parse({**given, "subscribe": "orders", "delegationTokens": "true"}, streaming=False)
    reader = BatchReader(read, read_schema(False))
    tasks = reader.partitions()
    assert [isinstance(each, RangePartition) and each.login is not None for each in tasks] == [True]
    assert PASSWORD.encode() not in pickle.dumps((reader, tasks))
    first = dict(delegation.for_tasks(client))
    assert dict(delegation.for_tasks(client)) == first
    assert PASSWORD not in str(list(first.items()))
    with Admin(protected.bootstrap, properties=first) as admin:
        assert admin.describe_cluster().brokers
    assert "sasl.password': '[hidden]'" in repr(as_settings(first))


def test_options_of_a_cluster_in_the_session(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=r"no setting spark\.kafka\.clusters\.none\.auth\.bootstrap\.servers"):
        cluster_options(spark, "none")


@pytest.mark.soak  # starts Spark in a process of its own
def test_a_job_runs_with_a_profile_and_shows_no_secret(protected: Broker, trust: Path, tmp_path: Path) -> None:
    job = tmp_path / "copies.py"
    job.write_text(
        "from ottla.pipeline import Job, topic\n\n"
        "job = Job('protected-copies')\n\n\n"
        "@job.flow(orders=topic('orders'), to=topic('copies-3'))\n"
        "def copies(orders):\n"
        "    return orders.select('value')\n"
    )
    given = options(protected, trust, "admin")
    properties = "".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in given.items())
    password = protected.client_config("admin")["sasl.password"]
    (tmp_path / "prod.properties").write_text(properties.replace(PASSWORD, password))
    (tmp_path / "ottla.toml").write_text(
        f'[profile.prod]\nbootstrap = "{protected.bootstrap}"\ncommand-config = "prod.properties"\n'
    )
    ottla = CommandLine(tmp_path / "home", "127.0.0.1:1")
    done = ottla("run", str(job), "--profile", "prod", "--once")
    assert done.returncode == 0, done.stderr
    assert count(protected, "copies-3") == RECORDS
    shown = [done.stdout, done.stderr, ottla("status", "protected-copies", "--json").stdout]
    shown += [file.read_text(errors="replace") for file in (tmp_path / "home").rglob("*") if file.is_file()]
    for secret in (password, STORE_PASSWORD):
        assert not any(secret in text for text in shown)
