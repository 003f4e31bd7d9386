"""`ottla perf`, with small loads: the accounts must be right, whatever the figures."""

from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory


def test_produce_then_consume(ottla: OttlaProgram, new_name: NewNameFactory) -> None:
    topic = new_name()
    produced = ottla.json("perf", "produce", topic, "-n", "5000", "--record-size", "50", "--partitions", "2")
    assert (produced["records"], produced["bytes"], produced["failed"]) == (5000, 250_000, 0)
    assert produced["records_per_s"] > 0
    latency = produced["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]

    consumed = ottla.json("perf", "consume", topic)
    assert (consumed["records"], consumed["bytes"]) == (5000, 250_000)
    assert ottla.json("perf", "consume", topic, "-n", "10")["records"] == 10
    assert "holds 5,000 records only" in ottla("perf", "consume", topic, "-n", "5001", code=1).stderr


def test_a_rate_is_kept(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    report = ottla.json("perf", "produce", new_topic(), "-n", "300", "--rate", "200", "--record-size", "10")
    assert 1.4 < report["seconds"] < 30


def test_latency(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    report = ottla.json("perf", "latency", new_topic(), "--rate", "100", "--seconds", "1.5", "--warm-up", "0.5")
    assert (report["records"], report["failed"]) == (150, 0)
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["max"]


def test_an_empty_topic_cannot_be_measured(ottla: OttlaProgram, new_topic: NewTopicFactory) -> None:
    assert "is empty; fill it with" in ottla("perf", "consume", new_topic(), code=1).stderr
