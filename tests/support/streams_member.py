"""Requests of a member of a streams group (KIP-1071): what a Kafka Streams client sends, and what it would not."""

from collections.abc import Sequence
from typing import Any, Final

from ottla.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.support.eventually import eventually
from tests.support.raw_client import ask

LEAVE: Final = -1
ASSIGNMENT_DELAYED: Final = 5
"""The status of a group that has a new epoch, and assigns its tasks a little later."""
COMPACT: Final = {"cleanup.policy": "compact"}


def internal(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> TopicInfo:
    """A repartition or changelog topic; dots of settings as underscores."""
    pairs = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=replicas, topic_configs=pairs)


def subtopology(
    name: str,
    *sources: str,
    reads: Sequence[TopicInfo] = (),
    writes: Sequence[str] = (),
    keeps: Sequence[TopicInfo] = (),
    **more: Any,
) -> Subtopology:
    """`reads`, `writes`: repartition topics; `keeps`: changelog topics."""
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=more.get("regex", []),
        state_changelog_topics=list(keeps),
        repartition_sink_topics=list(writes),
        repartition_source_topics=list(reads),
        copartition_groups=more.get("copartitioned", []),
    )


def reading(*topics: str, epoch: int = 0) -> Topology:
    """One subtopology that reads these topics."""
    return Topology(epoch=epoch, subtopologies=[subtopology("0", *topics)])


def counting(application: str, source: str, epoch: int = 0) -> Topology:
    """Two subtopologies with a repartition topic in between, and the changelog of a store."""
    sink, changelog = f"{application}-by-word-repartition", f"{application}-counts-changelog"
    return Topology(
        epoch=epoch,
        subtopologies=[
            subtopology("0", source, writes=[sink]),
            subtopology("1", reads=[internal(sink)], keeps=[internal(changelog, cleanup_policy="compact")]),
        ],
    )


def tasks(kind: dict[str, list[int]] | None) -> list[TaskIds] | None:
    if kind is None:
        return None
    return [TaskIds(subtopology_id=key, partitions=partitions) for key, partitions in kind.items()]


def heartbeat(
    who: str,
    group: str,
    epoch: int,
    topology: Topology | None = None,
    *,
    active: dict[str, list[int]] | None = None,
    standby: dict[str, list[int]] | None = None,
    endpoint: tuple[str, int] | None = None,
    **more: Any,
) -> StreamsGroupHeartbeatRequest:
    """What the member called `who` sends, by default as a client does: all that it has when it joins."""
    joins = epoch == 0 and not more.pop("bare", False)
    owned: dict[str, list[int]] | None = {} if joins or active is not None else None
    fields: dict[str, Any] = {
        "group_id": group,
        "member_id": who,
        "member_epoch": epoch,
        "endpoint_information_epoch": -1 if joins else 0,
        "rebalance_timeout_ms": 9_000 if joins else -1,
        "topology": topology,
        "active_tasks": tasks(active if active is not None else owned),
        "standby_tasks": tasks(standby if standby is not None else owned),
        "warmup_tasks": tasks(owned),
        "process_id": f"process-{who}" if joins else None,
        "user_endpoint": None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        "client_tags": [] if joins else None,
    }
    return StreamsGroupHeartbeatRequest(**{**fields, **more})


class Member:
    """A member that joins, takes what it is given at once, and gives up what it is asked to."""

    def __init__(self, bootstrap: str, group: str, who: str = "a-member") -> None:
        self.bootstrap, self.group, self.who = bootstrap, group, who
        self.epoch = 0
        self.active: dict[str, list[int]] = {}
        self.standby: dict[str, list[int]] = {}
        self.waits_for_tasks = False

    def hear(self, answer: Any) -> Any:
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        self.waits_for_tasks = any(status.status_code == ASSIGNMENT_DELAYED for status in answer.status or ())
        if answer.active_tasks is not None:
            self.active = {each.subtopology_id: each.partitions for each in answer.active_tasks}
            self.standby = {each.subtopology_id: each.partitions for each in answer.standby_tasks}
        return answer

    def join(self, topology: Topology, **more: Any) -> Any:
        request = heartbeat(self.who, self.group, 0, topology, **more)
        return self.hear(ask(self.bootstrap, request, 0, client_id=self.who))

    def beat(self, **more: Any) -> Any:
        request = heartbeat(self.who, self.group, self.epoch, active=self.active, standby=self.standby, **more)
        return self.hear(ask(self.bootstrap, request, 0, client_id=self.who))

    def leave(self) -> None:
        assert ask(self.bootstrap, heartbeat(self.who, self.group, LEAVE), 0).error_code == 0


def settle(*members: Member, tasks: int) -> None:
    """Have the members beat until they have so many active tasks between them, and nothing moves or is about to."""

    def is_settled() -> bool:
        before = [(member.epoch, member.active, member.standby) for member in members]
        for member in members:
            member.beat()
        if any(member.waits_for_tasks for member in members):
            return False
        held = sum(len(partitions) for member in members for partitions in member.active.values())
        same_epoch = len({member.epoch for member in members}) == 1
        return same_epoch and held == tasks and before == [(each.epoch, each.active, each.standby) for each in members]

    eventually(is_settled, timeout_s=30, interval_s=0.1)
