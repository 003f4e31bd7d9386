"""Answers that carry nothing but an error, for each thing that a request names."""

from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.framing import decode_response, encode_response
from ottla.protocol.messages import alter_client_quotas as quotas
from ottla.protocol.messages import (
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)
from ottla.protocol.messages import alter_partition_reassignments as reassign
from ottla.protocol.messages import alter_user_scram_credentials as scram
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.server.failures import failed_items
from ottla.server.routing import ROUTES

CODE = ErrorCode.REQUEST_TIMED_OUT
ID = UUID(int=5 << 64)
TOPIC = create_topics.CreatableTopic(name="t", num_partitions=3, replication_factor=2, assignments=[], configs=[])
ACL = create_acls.AclCreation(
    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
)
FILTER = delete_acls.DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter=None,
    principal_filter=None,
    host_filter=None,
    operation=3,
    permission_type=3,
)
PARTITION = reassign.ReassignablePartition(partition_index=4, replicas=[1])
ENTITY = quotas.EntityData(entity_type="user", entity_name=None)

CASES: list[tuple[Any, Any]] = [
    (create_topics.CreateTopicsRequest(topics=[TOPIC]), lambda answer: [each.name for each in answer.topics]),
    (
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=ID)], topic_names=["t"], timeout_ms=1
        ),
        lambda answer: [(each.name, each.topic_id) for each in answer.responses],
    ),
    (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)],
            timeout_ms=1,
            validate_only=False,
        ),
        lambda answer: [each.name for each in answer.results],
    ),
    (create_acls.CreateAclsRequest(creations=[ACL, ACL]), lambda answer: [each.error_code for each in answer.results]),
    (
        delete_acls.DeleteAclsRequest(filters=[FILTER]),
        lambda answer: [each.error_code for each in answer.filter_results],
    ),
    (
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])],
            validate_only=False,
        ),
        lambda answer: [(each.resource_type, each.resource_name) for each in answer.responses],
    ),
    (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=[])],
            validate_only=False,
        ),
        lambda answer: [(each.resource_type, each.resource_name) for each in answer.responses],
    ),
    (
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[4, 5])]
        ),
        lambda answer: [
            (each.topic, [(part.partition_id, part.error_code) for part in each.partition_result])
            for each in answer.replica_election_results
        ],
    ),
    (
        reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name="t", partitions=[PARTITION])]
        ),
        lambda answer: [
            answer.error_code,
            *(
                (each.name, [(part.partition_index, part.error_code) for part in each.partitions])
                for each in answer.responses
            ),
        ],
    ),
    (
        quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=[ENTITY], ops=[])], validate_only=False),
        lambda answer: [
            (each.error_code, each.entity[0].entity_type, each.entity[0].entity_name) for each in answer.entries
        ],
    ),
    (
        scram.AlterUserScramCredentialsRequest(
            deletions=[scram.ScramCredentialDeletion(name="a", mechanism=1)] * 2, upsertions=[]
        ),
        lambda answer: [(each.user, each.error_code) for each in answer.results],
    ),
]
WANTED: list[Any] = [
    ["t"],
    [(None, ID), ("t", UUID(int=0))],
    ["t"],
    [CODE, CODE],
    [CODE],
    [(2, "t")],
    [(4, "1")],
    [("t", [(4, CODE), (5, CODE)])],
    [CODE, ("t", [(4, CODE)])],
    [(CODE, "user", None)],
    [("a", CODE)],
]


@pytest.mark.parametrize(
    ("request_", "named", "wanted"),
    [(request, named, wanted) for (request, named), wanted in zip(CASES, WANTED, strict=True)],
    ids=[type(request).__name__ for request, _ in CASES],
)
def test_each_thing_has_the_error_and_is_named(request_: Any, named: Any, wanted: Any) -> None:
    route = ROUTES[request_.API_KEY]
    for version in range(route.min_version, route.max_version + 1):
        answer: Any = failed_items(request_, version, CODE, "no controller")
        if version == route.max_version:
            assert named(answer) == wanted
        if isinstance(request_, delete_topics.DeleteTopicsRequest) and version < 6:
            del answer.responses[0]  # topics have ids from version 6 on
        framed = b"".join(bytes(piece) for piece in encode_response(answer, version, 1))  # type: ignore[arg-type]
        decode_response(request_.API_KEY, version, framed[4:])


def test_an_answer_of_one_result_is_not_made_here() -> None:
    assert failed_items(UnregisterBrokerRequest(broker_id=1), 0, CODE, "no controller") is None
