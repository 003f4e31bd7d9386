"""`ottla config` and `ottla cluster`."""

from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewTopicFactory


def test_topic_settings(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic(1, **{"max.message.bytes": "2000"})
    assert ottla("config", "get", "topic", topic, "max.message.bytes").stdout == "2000\n"
    assert ottla("config", "get", "topic", topic, "retention.ms").stdout == "604800000\n"

    ottla("config", "set", "topic", topic, "retention.ms=1000", "--unset", "max.message.bytes")
    settings = ottla.json("config", "get", "topic", topic)
    assert settings["retention.ms"] == {"value": "1000", "source": "topic", "read_only": False}
    assert "max.message.bytes" not in settings
    everything = ottla.json("config", "get", "topic", topic, "--all")
    assert everything["max.message.bytes"]["source"] == "default"


def test_wrong_settings_change_nothing(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    before = ottla.json("config", "get", "topic", topic, "--all")
    assert "retention.ms" in ottla("config", "set", "topic", topic, "retention.ms=soon", code=1).stderr
    mistyped = ottla("config", "set", "topic", topic, "segment.bytes=1048576", "retenton.ms=1", code=1)
    assert "did you mean 'retention.ms'?" in mistyped.stderr
    assert "did you mean 'retention.ms'?" in ottla("config", "get", "topic", topic, "retenton.ms", code=1).stderr
    ottla("config", "set", "topic", topic, "retention.ms=5", "--dry-run")
    assert ottla.json("config", "get", "topic", topic, "--all") == before


def test_broker_settings(ottla: OttlaProgram) -> None:
    settings = ottla.json("config", "get", "broker", "1")
    assert settings["log.dirs"]["read_only"] is True
    assert settings["log.dirs"]["source"] == "server.properties"
    assert "there is no broker '77'; give one of 1" in ottla("config", "get", "broker", "77", code=1).stderr


def test_cluster_info(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    new_topic(3)
    info = ottla.json("cluster", "info")
    host, port = ottla.bootstrap.split(":")
    assert info["cluster_id"]
    assert info["controller"] == 1
    assert info["partitions"] >= 3
    assert info["without_leader"] == 0
    assert info["under_replicated"] == 0
    (broker,) = info["brokers"]
    assert (broker["broker"], broker["host"], broker["port"]) == (1, host, int(port))
    assert broker["leads"] == broker["replicas"] == info["partitions"]
    assert ottla("cluster", "info").stdout.startswith(f"1\t{host}\t{port}\t-\tyes\t")


def test_feature_levels(ottla: OttlaProgram) -> None:
    known = {row["feature"]: row for row in ottla.json("cluster", "features")}
    level, highest = known["transaction.version"]["level"], known["transaction.version"]["highest"]
    assert (level, highest) == (2, 2)
    assert ottla("cluster", "features").stdout == "".join(
        f"{name}\t{row['level']}\t{row['lowest']}\t{row['highest']}\n" for name, row in known.items()
    )
    assert "would take this" in ottla("cluster", "features", "transaction.version=1", "--dry-run").stderr
    assert "no level was changed" in ottla("cluster", "features", "transaction.version=3", code=1).stderr
    mistyped = ottla("cluster", "features", "transaction.version=1", "transactions.version=1", code=1)
    assert "did you mean 'transaction.version'?" in mistyped.stderr
    assert "NAME=LEVEL" in ottla("cluster", "features", "transaction.version", code=2).stderr
    assert {row["feature"]: row for row in ottla.json("cluster", "features")} == known
    ottla("cluster", "features", "transaction.version=1", "group.version=1")
    lowered = {row["feature"]: row["level"] for row in ottla.json("cluster", "features")}
    raised = {row["feature"]: row["level"] for row in ottla.json("cluster", "features", "transaction.version=2")}
    assert (lowered["transaction.version"], raised["transaction.version"]) == (1, 2)
