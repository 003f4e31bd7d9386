"""The broker's settings about groups that Ottla acts on; a part of `broker_settings`."""

from typing import Final

from ottla.config.setting import Change, Kind, Limit, OneOf, Range, Setting
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1

INT_MAX: Final = "2147483647"


def _fixed(
    name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None, *, internal: bool = False
) -> Setting:
    return Setting(name, kind, default, doc, limit, internal=internal)


GROUPS: Final = (
    _fixed(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        "3000",
        "How long an empty group waits for more members before the first assignment, counted from the last join, "
        "and at most the rebalance timeout in all. 0 when the broker is started "
        "without a properties file: that start is for development, where one consumer should not wait for others.",
    ),
    _fixed("group.max.session.timeout.ms", Kind.INT, "1800000", "Longest session timeout a member may ask for."),
    _fixed("group.max.size", Kind.INT, INT_MAX, "Most members of one group.", AT_LEAST_1),
    _fixed("group.min.session.timeout.ms", Kind.INT, "6000", "Shortest session timeout a member may ask for."),
    _fixed("offset.metadata.max.bytes", Kind.INT, "4096", "Most bytes of metadata with a committed offset."),
    _fixed("offsets.commit.timeout.ms", Kind.INT, "5000", "How long a commit may wait for its replicas.", AT_LEAST_1),
    _fixed(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        "600000",
        "How often expired offsets are looked for.",
        AT_LEAST_1,
    ),
    _fixed(
        "offsets.retention.minutes",
        Kind.INT,
        "10080",
        "How long a group's offsets outlive its last member (or, for a simple consumer, its last commit).",
        AT_LEAST_1,
    ),
    _fixed(
        "offsets.topic.num.partitions",
        Kind.INT,
        "50",
        "Partitions of `__consumer_offsets`, when it is created.",
        AT_LEAST_1,
    ),
    _fixed(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        "3",
        "Replicas of `__consumer_offsets`, when it is created; as many as there are brokers where those are fewer.",
        AT_LEAST_1,
    ),
    _fixed(
        "offsets.topic.segment.bytes", Kind.INT, "104857600", "`segment.bytes` of `__consumer_offsets`.", AT_LEAST_1
    ),
)

CONSUMER_GROUPS: Final = (
    _fixed(
        "group.coordinator.rebalance.protocols",
        Kind.LIST,
        "classic,consumer,streams",
        "Kinds of groups that may be made: `classic` cannot be left out, `consumer` and `streams` can. Whether there "
        "are share groups is up to the feature `share.version`.",
        OneOf(("consumer", "classic", "share", "streams")),
    ),
    Setting(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        "1000",
        "How long a consumer group's assignment stands at least before another is computed (KIP-1263), so that members "
        "that come together are assigned together; 0 computes one with every change. 0 as well when the broker is "
        "started without a properties file.",
        AT_LEAST_0,
        Change.CLUSTER_WIDE,
    ),
    _fixed(
        "group.consumer.assignors",
        Kind.LIST,
        "uniform,range",
        "Assignors of consumer groups (KIP-848); the first serves members that name none. Kafka takes Java classes "
        "too.",
        OneOf(("uniform", "range")),
    ),
    _fixed(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of consumer groups (KIP-848) send a heartbeat.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        "15000",
        "Most that `consumer.assignment.interval.ms` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        "15000",
        "Most that `consumer.heartbeat.interval.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        "60000",
        "Most that `consumer.session.timeout.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed("group.consumer.max.size", Kind.INT, INT_MAX, "Most members of a consumer group (KIP-848).", AT_LEAST_1),
    _fixed(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Which way a group that has members may change between the classic and the consumer protocol: `upgrade` to the "
        "consumer protocol, `downgrade` from it, both or none.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True),
    ),
    _fixed(
        "group.consumer.min.assignment.interval.ms",
        Kind.INT,
        "0",
        "Least that `consumer.assignment.interval.ms` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "Least that `consumer.heartbeat.interval.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        "45000",
        "Least that `consumer.session.timeout.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        "600000",
        "How often regular expressions of subscriptions are matched anew, besides when topics come and go.",
        Range(10000),
        internal=True,
    ),
    _fixed(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        "45000",
        "After how long without a heartbeat a member of a consumer group (KIP-848) is taken for dead.",
        AT_LEAST_1,
    ),
)

SHARE_GROUPS: Final = (
    Setting(
        "group.share.assignment.interval.ms",
        Kind.INT,
        "1000",
        "How long a share group's assignment stands at least before another is computed (KIP-1263), so that members "
        "that come together are assigned together; 0 computes one with every change. 0 as well when the broker is "
        "started without a properties file.",
        AT_LEAST_0,
        Change.CLUSTER_WIDE,
    ),
    _fixed(
        "group.share.delivery.count.limit",
        Kind.INT,
        "5",
        "How often a record is delivered to a share group at most, unless the group's own "
        "`share.delivery.count.limit` sets another limit.",
        Range(2, 10),
    ),
    _fixed(
        "group.share.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of share groups send a heartbeat.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.share.initialize.retry.interval.ms",
        Kind.INT,
        "30000",
        "After how long the state of a share partition is initialized again when no coordinator has answered; at least "
        "`offsets.commit.timeout.ms`.",
        AT_LEAST_1,
        internal=True,
    ),
    _fixed(
        "group.share.max.assignment.interval.ms",
        Kind.INT,
        "15000",
        "Most that `share.assignment.interval.ms` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.share.max.delivery.count.limit",
        Kind.INT,
        "10",
        "Most that `share.delivery.count.limit` of a group may be.",
        Range(5, 25),
    ),
    _fixed(
        "group.share.max.heartbeat.interval.ms",
        Kind.INT,
        "15000",
        "Most that `share.heartbeat.interval.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.share.max.partition.max.record.locks",
        Kind.INT,
        "4000",
        "Most that `share.partition.max.record.locks` of a group may be.",
        Range(2000, 10000),
    ),
    _fixed(
        "group.share.max.record.lock.duration.ms",
        Kind.INT,
        "60000",
        "Most that `share.record.lock.duration.ms` of a group may be.",
        Range(30000, 3600000),
    ),
    _fixed(
        "group.share.max.session.timeout.ms",
        Kind.INT,
        "60000",
        "Most that `share.session.timeout.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed("group.share.max.share.sessions", Kind.INT, "2000", "Most share sessions at a time.", AT_LEAST_1),
    _fixed("group.share.max.size", Kind.INT, "200", "Most members of a share group.", Range(1, 1000)),
    _fixed(
        "group.share.min.assignment.interval.ms",
        Kind.INT,
        "0",
        "Least that `share.assignment.interval.ms` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.share.min.delivery.count.limit",
        Kind.INT,
        "2",
        "Least that `share.delivery.count.limit` of a group may be.",
        Range(2, 5),
    ),
    _fixed(
        "group.share.min.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "Least that `share.heartbeat.interval.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.share.min.partition.max.record.locks",
        Kind.INT,
        "100",
        "Least that `share.partition.max.record.locks` of a group may be.",
        Range(100, 2000),
    ),
    _fixed(
        "group.share.min.record.lock.duration.ms",
        Kind.INT,
        "15000",
        "Least that `share.record.lock.duration.ms` of a group may be.",
        Range(1000, 30000),
    ),
    _fixed(
        "group.share.min.session.timeout.ms",
        Kind.INT,
        "45000",
        "Least that `share.session.timeout.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.share.partition.max.record.locks",
        Kind.INT,
        "2000",
        "Most records of a partition that the members of a share group may hold at a time.",
        Range(100, 10000),
    ),
    _fixed(
        "group.share.record.lock.duration.ms",
        Kind.INT,
        "30000",
        "How long a member of a share group may hold a record.",
        Range(1000, 3600000),
    ),
    _fixed(
        "group.share.session.timeout.ms",
        Kind.INT,
        "45000",
        "After how long without a heartbeat a member of a share group is taken for dead.",
        AT_LEAST_1,
    ),
    _fixed(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        Kind.INT,
        "300000",
        "How often the state of idle share partitions is written anew, so that the log before it can be deleted.",
        AT_LEAST_1,
        internal=True,
    ),
    _fixed(
        "share.coordinator.snapshot.update.records.per.snapshot",
        Kind.INT,
        "500",
        "Updates of a share partition's state that are written between two snapshots of it.",
        Range(0, 500),
    ),
    _fixed(
        "share.coordinator.state.topic.min.isr",
        Kind.SHORT,
        "2",
        "`min.insync.replicas` of `__share_group_state`, when it is created; as many as it has replicas where those "
        "are fewer.",
        AT_LEAST_1,
    ),
    _fixed(
        "share.coordinator.state.topic.num.partitions",
        Kind.INT,
        "50",
        "Partitions of `__share_group_state`, when it is created.",
        AT_LEAST_1,
    ),
    _fixed(
        "share.coordinator.state.topic.prune.interval.ms",
        Kind.INT,
        "300000",
        "How often records that are no longer needed are deleted from the beginning of `__share_group_state`.",
        AT_LEAST_1,
        internal=True,
    ),
    _fixed(
        "share.coordinator.state.topic.replication.factor",
        Kind.SHORT,
        "3",
        "Replicas of `__share_group_state`, when it is created; as many as there are brokers where those are fewer.",
        AT_LEAST_1,
    ),
    _fixed(
        "share.coordinator.state.topic.segment.bytes",
        Kind.INT,
        "104857600",
        "`segment.bytes` of `__share_group_state`.",
        AT_LEAST_1,
    ),
    _fixed(
        "share.coordinator.write.timeout.ms",
        Kind.INT,
        "5000",
        "How long a write of a share partition's state may wait for its replicas.",
        AT_LEAST_1,
    ),
)

STREAMS_GROUPS: Final = (
    Setting(
        "group.streams.assignment.interval.ms",
        Kind.INT,
        "1000",
        "How long a streams group's assignment stands at least before another is computed (KIP-1263): members that "
        "come at the same time are assigned together. 0 computes one with every change.",
        AT_LEAST_0,
        Change.CLUSTER_WIDE,
    ),
    _fixed(
        "group.streams.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of streams groups (KIP-1071) are asked to send a heartbeat.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.streams.initial.rebalance.delay.ms",
        Kind.INT,
        "3000",
        "How long an empty streams group waits for more members before the first assignment. 0 when the broker is "
        "started without a properties file.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.streams.max.assignment.interval.ms",
        Kind.INT,
        "15000",
        "Most that `streams.assignment.interval.ms` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.streams.max.heartbeat.interval.ms",
        Kind.INT,
        "15000",
        "Most that `streams.heartbeat.interval.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.streams.max.session.timeout.ms",
        Kind.INT,
        "60000",
        "Most that `streams.session.timeout.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.streams.max.size",
        Kind.INT,
        INT_MAX,
        "Most members of a streams group.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.streams.max.standby.replicas",
        Kind.INT,
        "2",
        "Most that `streams.num.standby.replicas` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.streams.min.assignment.interval.ms",
        Kind.INT,
        "0",
        "Least that `streams.assignment.interval.ms` of a group may be.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.streams.min.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "Least that `streams.heartbeat.interval.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.streams.min.session.timeout.ms",
        Kind.INT,
        "45000",
        "Least that `streams.session.timeout.ms` of a group may be.",
        AT_LEAST_1,
    ),
    _fixed(
        "group.streams.num.standby.replicas",
        Kind.INT,
        "0",
        "Standby tasks for each task with state.",
        AT_LEAST_0,
    ),
    _fixed(
        "group.streams.session.timeout.ms",
        Kind.INT,
        "45000",
        "After how long without a heartbeat a member of a streams group is taken for dead.",
        AT_LEAST_1,
    ),
)
