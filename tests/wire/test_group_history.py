"""Why groups rebalanced, asked over a socket and at the command line."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.cli.program import OttlaProgram
from tests.compat.confluent.members import Member, closing, poll_until
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_group_history import DescribeGroupHistoryRequest, GroupHistory
from ottla.testing import Broker

NEW = {"group.protocol": "consumer"}
OLD = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}


@pytest.fixture
def broker(ottla_broker: Broker) -> Broker:
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})
    admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(10)
    return ottla_broker


def history(broker: Broker, group: str) -> GroupHistory:
    (found,) = ask(broker.bootstrap, DescribeGroupHistoryRequest(group_ids=[group]), 0).groups
    return found


@pytest.mark.parametrize(("settings", "protocol"), [(NEW, "consumer"), (OLD, "classic")])
def test_every_rebalance_has_its_reasons_and_its_moves(broker: Broker, settings: dict[str, Any], protocol: str) -> None:
    group = f"of {protocol}"
    first = Member(broker.bootstrap, group, "orders", **settings)
    with closing(first):
        poll_until([first], [4])
        second = Member(broker.bootstrap, group, "orders", **settings)
        with closing(second):
            poll_until([first, second], [2, 2])
        poll_until([first], [4])
        rebalances = history(broker, group).rebalances
    assert {rebalance.protocol for rebalance in rebalances} == {protocol}
    assert [rebalance.epoch for rebalance in rebalances] == sorted(rebalance.epoch for rebalance in rebalances)
    assert all(rebalance.reasons and rebalance.assignor for rebalance in rebalances)
    sizes = [(rebalance.member_count, rebalance.moved_partitions) for rebalance in rebalances]
    assert sizes == [(1, 4), (2, 2), (1, 2)], rebalances
    joined, shared, alone = rebalances
    (move,) = joined.moves
    assert (move.topic, move.partitions, move.source_member_id) == ("orders", [0, 1, 2, 3], None)
    (given,) = shared.moves
    assert (given.source_member_id, len(given.partitions)) == (move.target_member_id, 2)
    (back,) = alone.moves
    assert (back.target_member_id, back.partitions) == (move.target_member_id, given.partitions)
    missing = history(broker, "nobody")
    assert (missing.error_code, missing.rebalances) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_only_those_that_know_ottla_are_told_of_its_own_requests(broker: Broker) -> None:
    def keys(software: str) -> set[int]:
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        return {key.api_key for key in ask(broker.bootstrap, request, 4).api_keys}

    assert keys("ottla") - keys("apache-kafka-java") == {
        ApiKey.DESCRIBE_GROUP_HISTORY,
        ApiKey.DESCRIBE_TELEMETRY,
        ApiKey.DESCRIBE_QUOTA_USAGE,
    }
    assert max(keys("librdkafka")) < 100


def test_the_command_line_shows_it(broker: Broker) -> None:
    ottla = OttlaProgram(broker.bootstrap)
    member = Member(broker.bootstrap, "shown", "orders", **NEW)
    with closing(member):
        poll_until([member], [4])
        assert ottla("group", "list", "--type", "consumer").stdout == "shown\tStable\tconsumer\n"
        assert ottla("group", "list", "--type", "classic").stdout == ""
    (shown,) = ottla.json("group", "describe", "shown", "--history")
    assert shown["group"] == "shown"
    rebalance = shown["rebalances"][0]
    assert (rebalance["type"], rebalance["assignor"], rebalance["moved"]) == ("consumer", "uniform", 4)
    (move,) = rebalance["moves"]
    assert (move["topic"], move["partitions"], move["from"]) == ("orders", [0, 1, 2, 3], None)
    line = ottla("group", "describe", "shown", "--history").stdout.splitlines()[0].split("\t")
    assert line[0] == "shown"
    assert line[3:7] == ["consumer", "uniform", "1", "4"]
    assert line[7:] == ["; ".join(rebalance["why"]), f"orders 0-3: nobody -> {move['to']}"]
    missing = ottla("group", "describe", "nobody", "--history", code=1).stderr
    assert "group 'nobody' does not exist; `ottla group list` shows those that do" in missing
    mistyped = ottla("group", "describe", "show", "--history", code=1).stderr
    assert "group 'show' does not exist; did you mean 'shown'?" in mistyped
    assert "two things" in ottla("group", "describe", "shown", "--history", "--members", code=2).stderr
