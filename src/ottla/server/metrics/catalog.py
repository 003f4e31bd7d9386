"""Every metric of a broker, as it is declared (docs/metrics.md is printed from it).

Those that begin with `kafka_` have the names and labels that dashboards for Kafka's JMX exporter and for kafka_exporter
read; those that begin with `ottla_` have no counterpart there.
"""

from typing import Final

from ottla.metrics.families import Family, counter, gauge, summary
from ottla.metrics.process import FAMILIES as _OF_PROCESSES

_TOPICS: Final = "kafka_server_brokertopicmetrics"
MESSAGES_IN: Final = counter(
    f"{_TOPICS}_messagesin_total", "records", "Records appended as leader; without label: of all topics.", "topic"
)
BYTES_IN: Final = counter(f"{_TOPICS}_bytesin_total", "bytes", "Record batches appended as leader.", "topic")
BYTES_OUT: Final = counter(f"{_TOPICS}_bytesout_total", "bytes", "Record batches sent to consumers.", "topic")
REPLICATION_IN: Final = counter(f"{_TOPICS}_replicationbytesin_total", "bytes", "Batches copied from leaders.", "topic")
REPLICATION_OUT: Final = counter(f"{_TOPICS}_replicationbytesout_total", "bytes", "Batches sent to followers.", "topic")
PRODUCE_REQUESTS: Final = counter(f"{_TOPICS}_totalproducerequests_total", "requests", "Produce requests answered.")
FETCH_REQUESTS: Final = counter(f"{_TOPICS}_totalfetchrequests_total", "requests", "Fetch requests answered.")

_REPLICAS: Final = "kafka_server_replicamanager"
PARTITIONS: Final = gauge(f"{_REPLICAS}_partitioncount", "partitions", "Replicas that this broker holds.")
LEADERS: Final = gauge(f"{_REPLICAS}_leadercount", "partitions", "Partitions that this broker leads.")
UNDER_REPLICATED: Final = gauge(
    f"{_REPLICAS}_underreplicatedpartitions", "partitions", "Led partitions with replicas that are not in sync."
)
UNDER_MIN_ISR: Final = gauge(
    f"{_REPLICAS}_underminisrpartitioncount",
    "partitions",
    "Led partitions with fewer replicas in sync than min.insync.replicas: producers with acks=all are refused.",
)
AT_MIN_ISR: Final = gauge(
    f"{_REPLICAS}_atminisrpartitioncount",
    "partitions",
    "Led partitions with followers that have just as many replicas in sync as min.insync.replicas.",
)
OFFLINE_REPLICAS: Final = gauge(
    f"{_REPLICAS}_offlinereplicacount", "replicas", "Replicas in log directories that have failed."
)
FOLLOWER_LAG: Final = gauge(
    "ottla_follower_lag_records",
    "records",
    "Distance of each follower to the end of the leader's log; only followers that are behind.",
    "topic",
    "partition",
    "replica",
)

_CONTROLLER: Final = "kafka_controller_kafkacontroller"
ACTIVE_CONTROLLER: Final = gauge(f"{_CONTROLLER}_activecontrollercount", "", "1 on the cluster's controller, else 0.")
OFFLINE_PARTITIONS: Final = gauge(
    f"{_CONTROLLER}_offlinepartitionscount", "partitions", "Partitions of the cluster without a leader; 0 elsewhere."
)
TOPICS: Final = gauge(f"{_CONTROLLER}_globaltopiccount", "topics", "Topics of the cluster; 0 elsewhere.")
ALL_PARTITIONS: Final = gauge(
    f"{_CONTROLLER}_globalpartitioncount", "partitions", "Partitions of the cluster; 0 elsewhere."
)
IMBALANCE: Final = gauge(
    f"{_CONTROLLER}_preferredreplicaimbalancecount",
    "partitions",
    "Partitions that are not led by their first replica; 0 elsewhere.",
)
FENCED_BROKERS: Final = gauge(
    f"{_CONTROLLER}_fencedbrokercount", "brokers", "Registered brokers that are not alive; 0 elsewhere. Quorums only."
)
ACTIVE_BROKERS: Final = gauge(
    f"{_CONTROLLER}_activebrokercount", "brokers", "Registered brokers that are alive; 0 elsewhere. Quorums only."
)
MIGRATION_STATE: Final = gauge(
    f"{_CONTROLLER}_zkmigrationstate",
    "",
    "The move of a cluster's node from ZooKeeper: 0 was never there, 1 moves, 2 waits, 3 has left, 4 on ZooKeeper.",
)
LAST_APPLIED: Final = gauge(
    f"{_CONTROLLER}_lastappliedrecordoffset",
    "offset",
    "The last record of the metadata log that a controller has read.",
)

_RAFT: Final = "kafka_server_raftmetrics"
RAFT_STATE: Final = gauge(f"{_RAFT}_current_state", "", "1 for a controller's role in the quorum.", "state")
RAFT_LEADER: Final = gauge(f"{_RAFT}_current_leader", "node", "The leader that a controller knows, -1 for none.")
RAFT_EPOCH: Final = gauge(f"{_RAFT}_current_epoch", "epoch", "The newest epoch that a controller knows.")
RAFT_HIGH_WATERMARK: Final = gauge(
    f"{_RAFT}_high_watermark", "offset", "The end of the committed metadata that a controller knows, -1 for none."
)
RAFT_END: Final = gauge(f"{_RAFT}_log_end_offset", "offset", "The end of a controller's metadata log.")
RAFT_VOTERS: Final = gauge(f"{_RAFT}_number_of_voters", "controllers", "The voters of the quorum.")
VOTER_LAG: Final = gauge(
    "ottla_quorum_voter_lag_records",
    "records",
    "Records of metadata that another voter lacks; on the quorum's leader.",
    "voter",
)
BROKERS: Final = gauge("kafka_brokers", "brokers", "Brokers of the cluster that this one knows to be there.")

_REQUESTS: Final = "kafka_network_requestmetrics"
REQUESTS: Final = counter(
    f"{_REQUESTS}_requests_total", "requests", "Requests answered, by API and version.", "request", "version"
)
TOTAL_TIME: Final = summary(
    f"{_REQUESTS}_totaltimems",
    "milliseconds",
    "From the request's arrival at the dispatcher until its reply is there. Quantiles of the last one to two minutes.",
    "request",
)
LOCAL_TIME: Final = summary(
    f"{_REQUESTS}_localtimems", "milliseconds", "The part of it in which the handler had the event loop.", "request"
)
REMOTE_TIME: Final = summary(
    f"{_REQUESTS}_remotetimems",
    "milliseconds",
    "The part of it spent waiting: for a sync, for followers, for records, for other members.",
    "request",
)
REQUEST_BYTES: Final = counter("ottla_request_bytes_total", "bytes", "Bytes of requests answered.", "request")
REPLY_BYTES: Final = counter("ottla_reply_bytes_total", "bytes", "Bytes of their replies.", "request")
ERRORS: Final = counter(
    f"{_REQUESTS}_errors_total",
    "errors",
    "Errors in answers, by API and code; of an answer about many partitions, those of the first 500.",
    "request",
    "error",
)
THROTTLED: Final = counter("ottla_throttled_requests_total", "requests", "Requests throttled by a quota.", "kind")
THROTTLE_TIME: Final = counter("ottla_throttle_seconds_total", "seconds", "Time that they were throttled for.", "kind")
THROTTLED_CLIENTS: Final = gauge(
    "ottla_throttled_clients", "users or client ids", "Those that are throttled now.", "kind"
)
CONNECTIONS: Final = gauge(
    "kafka_server_socketservermetrics_connection_count", "connections", "Open connections.", "listener"
)

LOG_SIZE: Final = gauge("kafka_log_log_size", "bytes", "Size of a replica's segments.", "topic", "partition")
NEWEST_OFFSET: Final = gauge(
    "kafka_topic_partition_current_offset", "offset", "High watermark of a led partition.", "topic", "partition"
)
OLDEST_OFFSET: Final = gauge(
    "kafka_topic_partition_oldest_offset", "offset", "Log start offset of a led partition.", "topic", "partition"
)
TOPIC_PARTITIONS: Final = gauge("kafka_topic_partitions", "partitions", "Partitions of a topic.", "topic")
TOPIC_SIZE: Final = gauge("ottla_topic_size_bytes", "bytes", "Size of all replicas of a topic here.", "topic")

GROUPS: Final = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "groups", "Groups coordinated here, of every kind."
)
GROUPS_BY_STATE: Final = gauge("ottla_groups", "groups", "Groups coordinated here.", "type", "state")
COMMITTED: Final = gauge(
    "kafka_consumergroup_current_offset",
    "offset",
    "The offset that a group has committed.",
    "consumergroup",
    "topic",
    "partition",
)
LAG: Final = gauge(
    "kafka_consumergroup_lag",
    "records",
    "Offsets between a group's committed offset and the high watermark, of partitions that this broker holds. "
    "For others: kafka_topic_partition_current_offset of their leaders minus kafka_consumergroup_current_offset.",
    "consumergroup",
    "topic",
    "partition",
)

OPEN_TRANSACTIONS: Final = gauge(
    "ottla_open_transactions", "transactions", "Transactions open in led partitions, counted for each partition."
)
OLDEST_TRANSACTION: Final = gauge(
    "ottla_oldest_transaction_records",
    "records",
    "The most records that an open transaction holds back from readers of committed records, over all led partitions.",
)
HANGING_TRANSACTIONS: Final = gauge(
    "ottla_hanging_transactions",
    "transactions",
    "Open transactions whose producer has been silent for five minutes more than transaction.max.timeout.ms, for each "
    "partition; looked at every producer.id.expiration.check.interval.ms.",
)
LATE_PARTITIONS: Final = gauge(
    f"{_REPLICAS}_partitionswithlatetransactionscount", "partitions", "Led partitions with such a transaction."
)
PRODUCERS: Final = gauge(
    f"{_REPLICAS}_produceridcount", "producers", "Producers that led partitions remember, for each partition."
)
SHARE_PARTITIONS: Final = gauge("ottla_share_partitions", "partitions", "Share partitions that this broker leads.")
SHARE_IN_FLIGHT: Final = gauge(
    "ottla_share_group_records_in_flight", "records", "Records that members of a share group hold.", "group"
)
SHARE_DELIVERED: Final = counter(
    "ottla_share_group_deliveries_total", "records", "Records given to members of a share group.", "group"
)
SHARE_REDELIVERED: Final = counter(
    "ottla_share_group_redeliveries_total", "records", "Those of them that had been given before.", "group"
)

SYNC_ROUNDS: Final = summary(
    "ottla_group_commit_seconds",
    "seconds",
    "Rounds of fdatasync: their count, and the time they took. No quantiles.",
    "directory",
)
SYNCED: Final = counter(
    "ottla_group_commit_partitions_total", "partitions", "Partitions that took part in those rounds.", "directory"
)
DIRECTORY_ONLINE: Final = gauge("ottla_log_directory_online", "", "1 if the log directory works, else 0.", "directory")
DIRECTORY_FREE: Final = gauge(
    "ottla_log_directory_free_bytes", "bytes", "Room that is left to this process in the filesystem.", "directory"
)
DIRECTORY_FULL: Final = gauge(
    "ottla_log_directory_full", "", "1 while the broker refuses to write there for want of room.", "directory"
)
UNCLEANABLE: Final = gauge(
    "ottla_uncleanable_logs", "logs", "Logs whose last compaction failed; the broker's log has the reasons."
)
DIRTY_LOGS: Final = gauge("ottla_compaction_debt_logs", "logs", "Compacted logs with something to compact.")
DIRTY: Final = gauge("ottla_compaction_debt_bytes", "bytes", "What there is to compact, in all logs together.")
DIRTY_BYTES: Final = gauge(
    "ottla_compaction_dirty_bytes",
    "bytes",
    "What there is to compact in a log, as of the cleaner's last look; the 100 logs with the most.",
    "topic",
    "partition",
)
DIRTY_RATIO: Final = gauge(
    "ottla_compaction_dirty_ratio",
    "share, from 0 to 1",
    "Its share of what can be compacted; from min.cleanable.dirty.ratio on, the log is due.",
    "topic",
    "partition",
)

LOOP_DELAY: Final = summary(
    "ottla_event_loop_delay_seconds",
    "seconds",
    "How late the event loop comes to a timer. Every request waits about as long before it is handled.",
)
MEMORY: Final = gauge(
    "ottla_request_memory_bytes", "bytes", "Held by requests and unsent replies (queued.max.request.bytes)."
)
MEMORY_LIMIT: Final = gauge("ottla_request_memory_limit_bytes", "bytes", "The limit of it.")
MEMORY_BY_OWNER: Final = gauge(
    "ottla_memory_bytes", "bytes", "Memory by its owner; that of idempotent producers is estimated.", "owner"
)
PARKED_FETCHES: Final = gauge("ottla_parked_fetches", "requests", "Fetches that wait for records.")
CLIENT_SERIES: Final = gauge(
    "ottla_client_series", "series", "Series of clients' own metrics, which are served as `ottla_client_...` (KIP-714)."
)
CLIENT_LEFT_OUT: Final = counter(
    "ottla_client_metrics_left_out_total",
    "clients, series or pushes",
    "What clients have pushed beyond the limits, or in another format.",
    "what",
)
LEFT_OUT: Final = gauge(
    "ottla_metrics_left_out",
    "topics or groups",
    "Topics or groups without series of their own, because there are more than metrics.topics.max or "
    "metrics.groups.max.",
    "what",
)

FAMILIES: Final = (*_OF_PROCESSES, *(value for value in list(globals().values()) if isinstance(value, Family)))
