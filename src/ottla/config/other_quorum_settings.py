"""The settings of Kafka's quorum of controllers (KRaft), which Ottla knows and does not act on."""

from typing import Final

from ottla.config.not_acted_on import other
from ottla.config.setting import Kind, Range
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1

QUORUM: Final = (
    other("controller.quorum.voters", Kind.LIST, "", "Members of Kafka's quorum."),
    other("controller.quorum.bootstrap.servers", Kind.LIST, "", "Where Kafka's quorum is found."),
    other(
        "controller.quorum.append.linger.ms",
        Kind.INT,
        "25",
        "How long the quorum's leader collects writes.",
        AT_LEAST_0,
    ),
    other(
        "controller.quorum.election.backoff.max.ms",
        Kind.INT,
        "1000",
        "Longest pause between elections in the quorum.",
        AT_LEAST_0,
    ),
    other(
        "controller.quorum.election.timeout.ms", Kind.INT, "1000", "How long a candidate waits for votes.", AT_LEAST_0
    ),
    other(
        "controller.quorum.auto.join.enable",
        Kind.BOOLEAN,
        "false",
        "Whether a controller joins the quorum by itself.",
    ),
    other("controller.quorum.fetch.max.bytes", Kind.INT, "1048576", "Largest fetch of the quorum's log.", AT_LEAST_1),
    other(
        "controller.quorum.fetch.snapshot.max.bytes",
        Kind.INT,
        "1048576",
        "Largest fetch of the quorum's snapshots.",
        AT_LEAST_1,
    ),
    other(
        "controller.quorum.fetch.timeout.ms",
        Kind.INT,
        "2000",
        "How long without the leader before an election.",
        AT_LEAST_0,
    ),
    other(
        "controller.quorum.request.timeout.ms",
        Kind.INT,
        "2000",
        "How long a member of the quorum waits for an answer.",
        AT_LEAST_0,
    ),
    other(
        "controller.quorum.retry.backoff.ms",
        Kind.INT,
        "20",
        "Pause before a member of the quorum asks again.",
        AT_LEAST_0,
    ),
    other(
        "controller.performance.always.log.threshold.ms",
        Kind.LONG,
        "2000",
        "Log controller events slower than this.",
        AT_LEAST_0,
        internal=True,
    ),
    other(
        "controller.performance.sample.period.ms",
        Kind.LONG,
        "60000",
        "How often the controller's event times are logged.",
        Range(100),
        internal=True,
    ),
    other(
        "metadata.log.max.record.bytes.between.snapshots",
        Kind.LONG,
        "20971520",
        "Bytes of the quorum's log between snapshots.",
        AT_LEAST_1,
    ),
    other(
        "metadata.log.max.snapshot.interval.ms",
        Kind.LONG,
        "3600000",
        "Longest time between snapshots of the quorum's log.",
        AT_LEAST_0,
    ),
    other("metadata.log.segment.bytes", Kind.INT, "1073741824", "Segment size of the quorum's log.", Range(8388608)),
    other("metadata.log.segment.ms", Kind.LONG, "604800000", "Segment age of the quorum's log."),
    other(
        "metadata.max.idle.interval.ms", Kind.INT, "500", "How often an idle quorum writes an empty record.", AT_LEAST_0
    ),
    other("metadata.max.retention.bytes", Kind.LONG, "104857600", "Size to which the quorum's log is cut."),
    other("metadata.max.retention.ms", Kind.LONG, "604800000", "Age to which the quorum's log is cut."),
    other(
        "internal.metadata.delete.delay.millis",
        Kind.LONG,
        "60000",
        "How long deleted files of the quorum's log stay.",
        internal=True,
    ),
    other(
        "internal.metadata.log.segment.bytes",
        Kind.INT,
        None,
        "Segment size of the quorum's log, for tests.",
        internal=True,
    ),
    other(
        "internal.metadata.max.batch.size.in.bytes",
        Kind.INT,
        "8388608",
        "Largest batch of the quorum's log.",
        internal=True,
    ),
    other(
        "internal.metadata.max.fetch.size.in.bytes",
        Kind.INT,
        "8388608",
        "Largest fetch of the quorum's log, until Kafka 4.1.",
        internal=True,
    ),
)
