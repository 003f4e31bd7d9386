"""`transaction.version` decides by which generation of the protocol a Java producer goes, and can be changed."""

from pathlib import Path

from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.tool_server import kafka_tool

from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest


def set_level(bootstrap: str, how: str, level: int) -> str:
    """What `kafka-features.sh` says."""
    tool, change = "org.apache.kafka.tools.FeatureCommand", f"transaction.version={level}"
    return kafka_tool(tool, "--bootstrap-server", bootstrap, how, "--feature", change).stdout


def test_the_tool_describes_the_level_of_the_metadata() -> None:
    tool = "org.apache.kafka.tools.FeatureCommand"
    lines = []
    for make in (GenuineKafka, OttlaProcess):
        with make() as broker:
            told = kafka_tool(tool, "--bootstrap-server", broker.bootstrap, "describe").stdout
        (line,) = (line.split() for line in told.splitlines() if "metadata.version" in line)
        lines.append(line[4:8])  # the least level supported is Ottla's own, and so is the epoch
    genuine, ottla = lines
    assert ottla == genuine
    assert "4.3-IV0" in ottla


def epoch_after_transactions(bootstrap: str, name: str) -> int:
    """The epoch of a Java producer that has gone through several transactions."""
    what = ("--topic", "t", "--num-records", "400", "--record-size", "10", "--throughput", "2000")
    how = ("--transactional-id", name, "--transaction-duration-ms", "20")
    kafka_tool("ProducerPerformance", "--producer-props", f"bootstrap.servers={bootstrap}", *what, *how)
    (found,) = ask(bootstrap, DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
    epoch: int = found.producer_epoch
    return epoch


def test_the_level_is_lowered_and_raised_under_clients(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path) as ottla:
        assert epoch_after_transactions(ottla.bootstrap, "second") > 1
        assert "transaction.version was downgraded to 1" in set_level(ottla.bootstrap, "downgrade", 1)
        ottla.restart(kill=True)
        assert epoch_after_transactions(ottla.bootstrap, "first") == 0
        assert "transaction.version was upgraded to 2" in set_level(ottla.bootstrap, "upgrade", 2)
        assert epoch_after_transactions(ottla.bootstrap, "first") > 1
