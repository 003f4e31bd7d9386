"""Streams groups in `__consumer_offsets`: Kafka reads what Ottla wrote, and Ottla goes on from what Kafka wrote."""

import re
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.group_stories import commit, prepare
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.streams_member import Member, counting, settle
from tests.support.tool_server import kafka_tool

from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
}
GROUP = "words"


def live_through(broker: BrokerProcess) -> list[Member]:
    """Two members that share the tasks of an application that counts words."""
    prepare(broker, "t")
    members = [Member(broker.bootstrap, GROUP, who) for who in ("one", "two")]
    members[0].join(counting(GROUP, "t"), rack_id="r", endpoint=("here", 8080))
    settle(members[0], tasks=4)
    members[1].join(counting(GROUP, "t"))
    settle(*members, tasks=4)
    first = members[0]
    partition = first.active["0"][0]
    request = commit(GROUP, ("t", partition, 7), member_id=first.who, generation=first.epoch)
    (topic,) = ask(broker.bootstrap, request, 9).topics
    assert topic.partitions[0].error_code == 0
    return members


def described(broker: BrokerProcess) -> object:
    """The group as a client sees it."""
    request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)

    def group() -> object:
        (found,) = ask(broker.bootstrap, request, 0).groups
        found.members.sort(key=lambda member: member.member_id)
        return None if found.error_code else found

    return eventually(group)


def test_ottla_goes_on_with_streams_groups_of_a_kafka_directory(tmp_path: Path) -> None:
    with GenuineKafka(tmp_path, properties=SETTINGS) as kafka:
        members = live_through(kafka)
        before = described(kafka)
        log_dir = kafka.log_dir
        kafka.stop()
        with OttlaProcess(properties={**SETTINGS, "log.dirs": str(log_dir)}) as ottla:
            described(ottla)
            for member in members:
                member.bootstrap = ottla.bootstrap
                had = (member.epoch, member.active, member.standby)
                assert member.beat().status == []
                assert (member.epoch, member.active, member.standby) == had
            assert described(ottla) == before
            # Topics whose hash is as Kafka wrote it, and settings that are the same, are no reason for a rebalance.
            assert not re.search(r"streams group words: assignment \d", ottla.log_text())
            members[0].leave()
            settle(members[1], tasks=4)


def test_kafkas_tools_print_streams_groups_that_ottla_wrote(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path, properties=SETTINGS) as ottla:
        members = live_through(ottla)
        (segment,) = ottla.log_dir.glob("__consumer_offsets-0/*.log")
        members[1].leave()
        ottla.stop()
    dump = kafka_tool("DumpLogSegments", "--files", str(segment), "--offsets-decoder").stdout
    for printed in (
        '"data":{"instanceId":null,"rackId":"r","clientId":"one"',
        '"processId":"process-one","userEndpoint":{"host":"here","port":8080},"clientTags":[]',
        '"validatedTopologyEpoch":0,"lastAssignmentConfigs":[{"key":"num.standby.replicas","value":"1"}]',
        '"stateChangelogTopics":[{"name":"words-counts-changelog","partitions":0,"replicationFactor":0,'
        '"topicConfigs":[{"key":"cleanup.policy","value":"compact"}]}]',
        '"activeTasks":[{"subtopologyId":"0","partitions":[0,1]},{"subtopologyId":"1","partitions":[0,1]}]',
        '"assignmentEpochs":[',
        '"standbyTasks":[{"subtopologyId":"1","partitions":[',
        '"state":2,',
        '"assignmentTimestamp":',
    ):
        assert printed in dump, printed
    assert re.search(r'"data":\{"epoch":\d,"metadataHash":-?[1-9]\d*,', dump)
    assert set(re.findall(r"isvalid: (\w+)", dump)) == {"true"}
