"""The broker's and controller's settings about a quorum of controllers (KRaft); a part of `broker_settings`.

Names, types, defaults and limits are Kafka 4.3's.
"""

from typing import Final

from ottla.config.setting import Kind, Range, Setting
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1

QUORUM: Final = (
    Setting(
        "controller.quorum.voters",
        Kind.LIST,
        "",
        "The controllers of a quorum that does not change: `id@host:port`, comma-separated.",
    ),
    Setting(
        "controller.quorum.bootstrap.servers",
        Kind.LIST,
        "",
        "Where controllers are found, for a quorum whose voters are in its log: `host:port`, comma-separated. Wins "
        "over `controller.quorum.voters`.",
    ),
    Setting(
        "controller.quorum.auto.join.enable",
        Kind.BOOLEAN,
        "false",
        "Whether a controller joins the quorum by itself.",
    ),
    Setting(
        "controller.quorum.election.timeout.ms",
        Kind.INT,
        "1000",
        "How long a candidate waits for votes before it is a candidate again.",
        AT_LEAST_0,
    ),
    Setting(
        "controller.quorum.election.backoff.max.ms",
        Kind.INT,
        "1000",
        "Longest pause between two elections.",
        AT_LEAST_0,
    ),
    Setting(
        "controller.quorum.fetch.timeout.ms",
        Kind.INT,
        "2000",
        "How long a voter waits for its leader before it asks for an election, and a leader for a majority before it "
        "resigns.",
        AT_LEAST_0,
    ),
    Setting(
        "controller.quorum.fetch.max.bytes",
        Kind.INT,
        "1048576",
        "Largest fetch of the metadata log; at least one batch is fetched.",
        AT_LEAST_1,
    ),
    Setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        Kind.INT,
        "1048576",
        "Largest fetch of a snapshot of the metadata log.",
        AT_LEAST_1,
    ),
    Setting(
        "controller.quorum.append.linger.ms",
        Kind.INT,
        "25",
        "How long the quorum's leader collects writes.",
        AT_LEAST_0,
    ),
    Setting(
        "controller.quorum.request.timeout.ms",
        Kind.INT,
        "2000",
        "How long a member of the quorum waits for an answer.",
        AT_LEAST_0,
    ),
    Setting(
        "controller.quorum.retry.backoff.ms",
        Kind.INT,
        "20",
        "Pause before a member of the quorum asks again.",
        AT_LEAST_0,
    ),
    Setting(
        "broker.heartbeat.interval.ms",
        Kind.INT,
        "2000",
        "How often a broker sends a heartbeat to the active controller.",
    ),
    Setting(
        "broker.session.timeout.ms",
        Kind.INT,
        "9000",
        "How long a broker without heartbeats counts as alive; a broker whose heartbeats were not answered for nearly "
        "so long acknowledges only what all of its in-sync followers have.",
    ),
    Setting(
        "initial.broker.registration.timeout.ms",
        Kind.INT,
        "60000",
        "How long a starting broker tries to register with the controllers before it gives up.",
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        Kind.LONG,
        "20971520",
        "Bytes of the metadata log between two snapshots.",
        AT_LEAST_1,
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        Kind.LONG,
        "3600000",
        "Longest time between two snapshots of the metadata log; 0 means no limit.",
        AT_LEAST_0,
    ),
    Setting(
        "metadata.log.segment.bytes", Kind.INT, "1073741824", "Largest segment of the metadata log.", Range(8388608)
    ),
    Setting("metadata.log.segment.ms", Kind.LONG, "604800000", "Age at which a segment of the metadata log is rolled."),
    Setting(
        "metadata.max.idle.interval.ms",
        Kind.INT,
        "500",
        "How often the active controller writes a record when nothing else is written; 0 means never.",
        AT_LEAST_0,
    ),
    Setting(
        "metadata.max.retention.bytes",
        Kind.LONG,
        "104857600",
        "Size of the metadata log and its snapshots past which older ones are deleted.",
    ),
    Setting(
        "metadata.max.retention.ms",
        Kind.LONG,
        "604800000",
        "Age past which segments and snapshots of the metadata log are deleted.",
    ),
)
