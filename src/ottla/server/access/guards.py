"""The guard of each API. What a guard requires is declared in `ottla.server.routing`; a test compares the two.

Source: Kafka 4.3, `KafkaApis` and `ControllerApis`. An API without a guard is refused where there is an authorizer.
"""

from collections.abc import Mapping
from typing import Final

from ottla.protocol.api import ApiKey
from ottla.security.authorization import Operation
from ottla.server.access import admin, configs, data, groups, quotas
from ottla.server.access.access import Guard
from ottla.server.access.whole import cluster, everybody, group

ALTER, DESCRIBE = Operation.ALTER, Operation.DESCRIBE
DESCRIBE_CONFIGS = Operation.DESCRIBE_CONFIGS
READ_GROUP = group(Operation.READ)
BROKERS_ONLY = cluster(Operation.CLUSTER_ACTION)
SHARE_STATE = cluster(Operation.CLUSTER_ACTION, answer=admin.refused_share_state)

GUARDS: Final[Mapping[ApiKey, Guard]] = {
    ApiKey.PRODUCE: data.produce,
    ApiKey.FETCH: data.fetch,
    ApiKey.LIST_OFFSETS: data.list_offsets,
    ApiKey.METADATA: admin.metadata,
    ApiKey.OFFSET_COMMIT: groups.offset_commit,
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.JOIN_GROUP: READ_GROUP,
    ApiKey.HEARTBEAT: READ_GROUP,
    ApiKey.LEAVE_GROUP: READ_GROUP,
    ApiKey.SYNC_GROUP: READ_GROUP,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.SASL_HANDSHAKE: everybody,
    ApiKey.API_VERSIONS: everybody,
    ApiKey.CREATE_TOPICS: admin.create_topics,
    ApiKey.DELETE_TOPICS: admin.delete_topics,
    ApiKey.DELETE_RECORDS: data.delete_records,
    ApiKey.INIT_PRODUCER_ID: data.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: data.offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: data.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: data.add_offsets_to_txn,
    ApiKey.END_TXN: data.end_txn,
    ApiKey.WRITE_TXN_MARKERS: cluster(ALTER, Operation.CLUSTER_ACTION, answer=admin.refused_markers),
    ApiKey.TXN_OFFSET_COMMIT: groups.txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: cluster(DESCRIBE),
    ApiKey.DESCRIBE_QUORUM: cluster(DESCRIBE),
    ApiKey.ADD_RAFT_VOTER: cluster(ALTER),
    ApiKey.REMOVE_RAFT_VOTER: cluster(ALTER),
    ApiKey.CREATE_ACLS: cluster(ALTER, answer=admin.refused_items),
    ApiKey.DELETE_ACLS: cluster(ALTER, answer=admin.refused_items),
    ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
    ApiKey.ALTER_CONFIGS: configs.alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster(ALTER, answer=admin.refused_log_dirs),
    ApiKey.DESCRIBE_LOG_DIRS: cluster(DESCRIBE, answer=admin.refused_log_dir_listing),
    ApiKey.SASL_AUTHENTICATE: everybody,
    ApiKey.CREATE_PARTITIONS: admin.create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: everybody,  # their handlers ask what Kafka's manager of tokens does
    ApiKey.RENEW_DELEGATION_TOKEN: everybody,
    ApiKey.EXPIRE_DELEGATION_TOKEN: everybody,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: everybody,
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.ELECT_LEADERS: admin.elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster(ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster(DESCRIBE),
    ApiKey.OFFSET_DELETE: groups.offset_delete,
    ApiKey.UPDATE_FEATURES: cluster(ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster(Operation.ALTER_CONFIGS, answer=quotas.refused_quotas),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: cluster(ALTER, answer=admin.refused_items),
    ApiKey.DESCRIBE_CLUSTER: admin.describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: admin.describe_producers,
    ApiKey.UNREGISTER_BROKER: cluster(ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: admin.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: admin.list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.subscribing,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: everybody,
    ApiKey.PUSH_TELEMETRY: everybody,
    ApiKey.LIST_CONFIG_RESOURCES: cluster(DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: admin.describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: groups.subscribing,
    ApiKey.SHARE_GROUP_DESCRIBE: groups.share_group_describe,
    ApiKey.SHARE_FETCH: groups.sharing,
    ApiKey.SHARE_ACKNOWLEDGE: groups.sharing,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: SHARE_STATE,
    ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_group_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: groups.streams_group_describe,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: groups.describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: groups.alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: groups.delete_share_group_offsets,
    ApiKey.LEADER_AND_ISR: BROKERS_ONLY,
    ApiKey.STOP_REPLICA: BROKERS_ONLY,
    ApiKey.UPDATE_METADATA: BROKERS_ONLY,
    ApiKey.CONTROLLED_SHUTDOWN: BROKERS_ONLY,
    ApiKey.ALTER_PARTITION: BROKERS_ONLY,
    ApiKey.ALLOCATE_PRODUCER_IDS: BROKERS_ONLY,
    ApiKey.DESCRIBE_GROUP_HISTORY: groups.describe_group_history,
    ApiKey.DESCRIBE_TELEMETRY: cluster(DESCRIBE),
    ApiKey.DESCRIBE_QUOTA_USAGE: cluster(DESCRIBE_CONFIGS),
}
