"""Every benchmark, in the order in which they run."""

from typing import Final

from benches.benchmarks.authorization import AUTHORIZATION
from benches.benchmarks.big_log import BIG_LOG
from benches.benchmarks.cluster import CLUSTER_CONTROLLER, CLUSTER_FAILOVER, CLUSTER_LOAD, CLUSTER_START
from benches.benchmarks.connect import CONNECT_CAPTURE, CONNECT_SNAPSHOT
from benches.benchmarks.connect_sink import CONNECT_SINK, CONNECT_SINK_CHANGES, CONNECT_SINK_WORKERS
from benches.benchmarks.groups import GROUP_MEMORY, GROUP_SETTLING, HEARTBEATS
from benches.benchmarks.growth import GROWTH
from benches.benchmarks.latency import LATENCY
from benches.benchmarks.load import LOAD_1K, LOAD_100B
from benches.benchmarks.quorum import CLUSTER_IDLE, CLUSTER_LEADER, CLUSTER_MANY
from benches.benchmarks.records import DEAR_REQUESTS, RECORD_CHECKS
from benches.benchmarks.requests import CLASSIC_CROWD, METADATA, REQUESTS
from benches.benchmarks.restart import RESTART_CRASH, RESTART_PARTITIONS
from benches.benchmarks.security import SECURITY_LOAD, SECURITY_LOGINS
from benches.benchmarks.spark_read import SPARK_LATENCY, SPARK_READ
from benches.benchmarks.spark_write import SPARK_WRITE
from benches.benchmarks.start import START
from benches.benchmarks.transactions import READ_PROCESS_WRITE, TRANSACTIONS
from benches.model import Benchmark

BENCHMARKS: Final[tuple[Benchmark, ...]] = (
    START,
    LATENCY,
    LOAD_1K,
    LOAD_100B,
    REQUESTS,
    METADATA,
    AUTHORIZATION,
    RECORD_CHECKS,
    DEAR_REQUESTS,
    CLASSIC_CROWD,
    TRANSACTIONS,
    READ_PROCESS_WRITE,
    GROUP_SETTLING,
    HEARTBEATS,
    GROUP_MEMORY,
    SECURITY_LOAD,
    SECURITY_LOGINS,
    RESTART_PARTITIONS,
    RESTART_CRASH,
    SPARK_READ,
    SPARK_LATENCY,
    SPARK_WRITE,
    CONNECT_CAPTURE,
    CONNECT_SNAPSHOT,
    CONNECT_SINK,
    CONNECT_SINK_WORKERS,
    CONNECT_SINK_CHANGES,
    CLUSTER_START,
    CLUSTER_IDLE,
    CLUSTER_LOAD,
    CLUSTER_FAILOVER,
    CLUSTER_LEADER,
    CLUSTER_CONTROLLER,
    CLUSTER_MANY,
    *GROWTH,
    BIG_LOG,
)
