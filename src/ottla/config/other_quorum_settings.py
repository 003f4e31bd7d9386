"""The settings of Kafka's quorum of controllers (KRaft), which Ottla knows and does not act on."""

from typing import Final

from ottla.config.not_acted_on import other
from ottla.config.setting import Kind, Range
from ottla.config.topic_settings import AT_LEAST_0

QUORUM: Final = (
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
