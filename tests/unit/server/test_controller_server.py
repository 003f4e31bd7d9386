"""A controller over real connections, with its log in memory."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import pytest
from tests.support.authorizers import install
from tests.support.controller_server import ask, envelope, port_of, running
from tests.support.quorum_brokers import CLUSTER_ID, NODE, registration

from ottla.client.errors import BrokerUnavailable
from ottla.clock import SystemClock
from ottla.cluster.metadata_log.registrations import BrokerRegistration, ListenerAddress
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.metadata.tree_records import messages_of
from ottla.protocol.api import ApiKey, response_class
from ottla.protocol.compiled import decode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import Listener
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.schema import Message
from ottla.server.controller_handlers import describe_cluster
from ottla.server.controller_handlers import envelope as envelopes
from ottla.server.controller_server import ControllerServer
from ottla.server.metrics.controller_page import controller_page
from ottla.slices import Slices
from ottla.testing.memory_quorum import MemoryQuorum

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def run(
    scenario: Callable[[ControllerServer], Awaitable[None]],
    *,
    taken_over: Sequence[Message] | None = None,
    **settings: str,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60), running(loop, None, taken_over=taken_over, **settings) as server:
            await until(lambda: server.controller.is_active)
            await scenario(server)

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


async def register(server: ControllerServer, broker_id: int = 1, **changes: Any) -> int:
    answer = await ask(server, registration(broker_id, **changes))
    assert answer.error_code == 0
    beat = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=answer.broker_epoch,
        current_metadata_offset=server.replay.offset,
        want_fence=False,
        want_shut_down=False,
    )
    heard = await ask(server, beat)
    assert (heard.error_code, heard.is_fenced) == (0, False)
    epoch: int = answer.broker_epoch
    return epoch


def create(*names: str) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=False)


async def forwarded(server: ControllerServer, request: Message, version: int, **options: Any) -> Any:
    """The answer within, or the error of the Envelope."""
    answer = await ask(server, envelope(request, version, **options))
    if answer.error_code:
        return ErrorCode(answer.error_code)
    assert int.from_bytes(answer.response_data[:4], "big") == 7
    return decode(response_class(request.API_KEY or 0), answer.response_data, version, 5)


def test_says_what_it_serves() -> None:
    async def scenario(server: ControllerServer) -> None:
        answer = await ask(server, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        served = {each.api_key for each in answer.api_keys}
        assert {ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT, ApiKey.VOTE} <= served
        assert ApiKey.PRODUCE not in served
        assert {each.name for each in answer.supported_features} >= {"metadata.version", "kraft.version"}
        assert {each.name: each.max_version_level for each in answer.finalized_features}["metadata.version"] == 30

    run(scenario)


def test_brokers_register_and_topics_are_created() -> None:
    async def scenario(server: ControllerServer) -> None:
        await register(server)
        answer = await ask(server, create("direct"))
        assert [(each.name, each.error_code) for each in answer.topics] == [("direct", 0)]
        within = await forwarded(server, create("through-a-broker", "direct"), 7)
        assert [each.error_code for each in within.topics] == [0, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert set(server.controller.image.topics) == {"direct", "through-a-broker"}
        gone = await ask(server, UnregisterBrokerRequest(broker_id=1))
        again = await ask(server, UnregisterBrokerRequest(broker_id=1))
        assert (gone.error_code, again.error_code) == (0, ErrorCode.BROKER_ID_NOT_REGISTERED)

    run(scenario)


def test_controllers_register_and_are_described() -> None:
    async def scenario(server: ControllerServer) -> None:
        await until(lambda: NODE in server.replay.state.controllers)
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        answer = await ask(server, request, 2)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, NODE)
        assert [(each.broker_id, each.port) for each in answer.brokers] == [(NODE, port_of(server))]
        request.endpoint_type = 1
        assert (await ask(server, request, 2)).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE

    run(scenario)


def test_voters_are_described_before_the_log_has_metadata() -> None:
    """So that Kafka's tools find the leader while a cluster waits to move from ZooKeeper."""

    async def main() -> None:
        replay = QuorumReplay(CLUSTER_ID, failed=MagicMock())
        quorum = MemoryQuorum(NODE, address=("127.0.0.1", 9093))
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        answer = describe_cluster.handle(replay, quorum, request, MagicMock(listener="CONTROLLER"))
        assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(NODE, "127.0.0.1", 9093)]

    asyncio.run(main())


class TestEnvelopes:
    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            ({"request_principal": b"\0\0\xff\xff\xff\xff\x0f"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            ({"request_principal": b"\0\x09\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            ({"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
            ({"request_data": b""}, ErrorCode.INVALID_REQUEST),
            ({"request_data": b"\0\x13\0\7\0\0\0\1\xff\xff\0\xff"}, ErrorCode.INVALID_REQUEST),
            ({"request_data": b"\0\x13\0\x63\0\0\0\1\xff\xff\0"}, ErrorCode.UNSUPPORTED_VERSION),
        ],
    )
    def test_hostile_ones_are_refused(self, change: dict[str, Any], code: ErrorCode) -> None:
        async def scenario(server: ControllerServer) -> None:
            whole = envelope(create("t"), 7)
            fields = {
                name: getattr(whole, name) for name in ("request_data", "request_principal", "client_host_address")
            }
            assert (await ask(server, EnvelopeRequest(**(fields | change)))).error_code == code

        run(scenario)

    def test_none_carries_another_one_or_what_nodes_send(self) -> None:
        async def scenario(server: ControllerServer) -> None:
            for request, version in (
                (envelope(create("t"), 7), 0),
                (registration(1), 4),
                (DescribeClusterRequest(include_cluster_authorized_operations=False), 0),
            ):
                assert await forwarded(server, request, version) is ErrorCode.INVALID_REQUEST

        run(scenario)

    def test_a_controller_that_is_not_active_says_so(self) -> None:
        async def scenario(server: ControllerServer) -> None:
            assert isinstance(server.node, MemoryQuorum)
            server.node.lead(NODE + 1)
            assert await forwarded(server, create("t"), 7) is ErrorCode.NOT_CONTROLLER
            assert (await ask(server, registration(1))).error_code == ErrorCode.NOT_CONTROLLER
            assert [each.error_code for each in (await ask(server, create("t"))).topics] == [ErrorCode.NOT_CONTROLLER]

        run(scenario)

    def test_a_node_that_does_not_lead_the_quorum_says_so_of_the_envelope(self) -> None:
        """Else a broker of genuine Kafka would go on asking it."""
        remove = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=2, voter_directory_id=UUID(int=200))
        refused = RemoveRaftVoterResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="another leads")
        handlers: Any = {ApiKey.REMOVE_RAFT_VOTER: lambda request, context: refused}
        unmetered: Any = SimpleNamespace(enforced=None)
        slices = Slices(SystemClock())
        answer = asyncio.run(envelopes.handle(handlers, slices, unmetered, envelope(remove, 0), MagicMock()))
        assert answer.error_code == ErrorCode.NOT_CONTROLLER


def allow(principal: str, operation: int, *, kind: int = 4, name: str = "kafka-cluster") -> CreateAclsRequest:
    creation = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[creation])


CREATE, CLUSTER_ACTION = 5, 9
OFFICE = """
# AUTHORIZER office = office:Office
class Office:
    def configure(self, settings): pass
    def authorize(self, action): return action.host.startswith("10.1.")
    def close(self): pass
"""


class TestAuthorization:
    def test_clients_without_a_right_change_nothing(self) -> None:
        async def scenario(server: ControllerServer) -> None:
            assert (await ask(server, registration(1))).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            refused = await ask(server, envelope(create("t"), 7, principal="admin"))
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            answer = await ask(server, create("t"))
            assert [each.error_code for each in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            asked = await ask(server, allow("User:ANONYMOUS", CREATE))
            assert [each.error_code for each in asked.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]

        run(scenario, authorizer_class_name=AUTHORIZER, super_users="User:admin")

    def test_a_forwarded_request_has_the_rights_of_its_client(self) -> None:
        async def scenario(server: ControllerServer) -> None:
            await register(server)
            within = await forwarded(server, create("t"), 7)
            assert [each.error_code for each in within.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            made = await ask(server, allow("User:alice", CREATE))
            assert [each.error_code for each in made.results] == [0]
            within = await forwarded(server, create("t"), 7)
            assert [each.error_code for each in within.topics] == [0]
            of_bob = await forwarded(server, create("u"), 7, principal="bob")
            assert [each.error_code for each in of_bob.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            everything = DeleteAclsFilter(
                resource_type_filter=1,
                resource_name_filter=None,
                pattern_type_filter=1,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            gone = await ask(server, DeleteAclsRequest(filters=[everything]))
            assert [len(each.matching_acls) for each in gone.filter_results] == [1]
            within = await forwarded(server, create("v"), 7)
            assert [each.error_code for each in within.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            assert server.replay.state.acls == {}

        run(scenario, authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")

    def test_an_authorizer_of_the_operators_own_is_asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It decides on forwarded requests, too, by the principal and address of the client."""

        async def scenario(server: ControllerServer) -> None:
            await register(server)
            answer = await forwarded(server, create("t"), 7)
            assert [each.error_code for each in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            answer = await forwarded(server, create("t"), 7, address=b"\x0a\1\0\1")
            assert [each.error_code for each in answer.topics] == [0]

        monkeypatch.syspath_prepend(str(install(tmp_path, office=OFFICE)))
        run(scenario, authorizer_class_name="office", super_users="User:ANONYMOUS")


def test_a_hostile_registration_costs_nothing() -> None:
    async def scenario(server: ControllerServer) -> None:
        many = registration(1, log_dirs=[UUID(int=1 << 100 | number) for number in range(5000)])
        assert (await ask(server, many)).error_code == ErrorCode.INVALID_REGISTRATION
        assert server.replay.state.brokers == {}

    run(scenario)


def test_delegation_tokens_are_created_for_clients_of_brokers_and_expire() -> None:
    async def scenario(server: ControllerServer) -> None:
        request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=60_000)
        direct = await ask(server, request, 3)
        assert direct.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        made = await forwarded(server, request, 3)
        assert (made.error_code, made.principal_name) == (0, "alice")
        assert server.replay.state.tokens[made.token_id].owner == "User:alice"
        of_bob = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        refused = await forwarded(server, of_bob, 2, principal="bob")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await forwarded(server, of_bob, 2)).error_code == 0
        assert server.replay.state.tokens == {}

    run(scenario, delegation_token_secret_key="of-this-test")


async def listening() -> asyncio.Server:
    return await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)


async def three(server: ControllerServer) -> list[asyncio.Server]:
    """Three brokers that do nothing but listen; each hangs up after its heartbeat."""
    sockets = [await listening() for _ in range(3)]
    for number, each in enumerate(sockets, 1):
        port = each.sockets[0].getsockname()[1]
        at = [Listener(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)]
        await register(server, number, listeners=at)
    return sockets


def alive(server: ControllerServer) -> set[int]:
    return set(server.controller.image.brokers)


class TestEndedBrokers:
    def test_one_that_hung_up_and_refuses_connections_is_fenced_before_its_session_is_over(self) -> None:
        async def scenario(server: ControllerServer) -> None:
            sockets = await three(server)
            await asyncio.sleep(0.4)
            assert alive(server) == {1, 2, 3}
            sockets[1].close()
            assert isinstance(server.node, MemoryQuorum)
            server.node.resign(server.node.leader.epoch)  # the next term looks for all
            await until(lambda: alive(server) == {1, 3})
            for each in sockets:
                each.close()
            server.node.resign(server.node.leader.epoch)
            await asyncio.sleep(0.6)
            assert alive(server) == {1, 3}, "half of the brokers: this controller may be cut off itself"

        run(scenario, broker_session_timeout_ms="600000")

    def test_one_that_ends_at_once_is_fenced_when_its_connection_breaks(self) -> None:
        async def scenario(server: ControllerServer) -> None:
            sockets = await three(server)
            await asyncio.sleep(0.4)
            sockets[0].close()
            epoch = server.controller.image.brokers[BrokerId(1)].epoch
            beat = BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=epoch,
                current_metadata_offset=server.replay.offset,
                want_fence=False,
                want_shut_down=False,
            )
            assert (await ask(server, beat)).error_code == 0
            await until(lambda: alive(server) == {2, 3})
            for each in sockets:
                each.close()

        run(scenario, broker_session_timeout_ms="600000")

    def test_one_that_has_ended_during_the_move_from_zookeeper_is_fenced_soon(self) -> None:
        async def main() -> None:
            sockets = [await listening() for _ in range(3)]
            records = messages_of({}, [moved(number, each) for number, each in enumerate(sockets, 1)])
            sockets[2].close()
            async with (
                asyncio.timeout(60),
                running(asyncio.get_running_loop(), taken_over=records, broker_session_timeout_ms="600000") as server,
            ):
                await until(lambda: alive(server) == {1, 2, 3})
                await until(lambda: alive(server) == {1, 2})
            for each in sockets:
                each.close()

        asyncio.run(main())


def moved(broker_id: int, server: asyncio.Server) -> BrokerRegistration:
    """A broker as it comes from ZooKeeper."""
    at = ListenerAddress("PLAINTEXT", "127.0.0.1", server.sockets[0].getsockname()[1], 0)
    return BrokerRegistration(BrokerId(broker_id), UUID(int=broker_id), broker_id, (at,), {}, None, False, False, ())


def test_the_debug_page_names_brokers_with_their_heartbeats_and_the_reason_of_a_fence() -> None:
    async def scenario(server: ControllerServer) -> None:
        await register(server)
        await register(server, 2)
        await until(lambda: alive(server) == set())
        page = controller_page(server, time.monotonic() + 1)
        assert json.loads(json.dumps(page)) == page
        assert (page["is_active"], page["leader"], page["controllers"]) == (True, NODE, [NODE])
        assert page["levels"]["metadata.version"] == 30
        assert set(page["brokers"]) == {"1", "2"}
        assert page["brokers"]["1"]["why_fenced"].startswith("no heartbeat has come for ")
        assert page["brokers"]["1"]["seconds_since_contact"] > 0.5

    run(scenario, broker_session_timeout_ms="500")


def test_what_a_controller_does_not_serve_closes_the_connection() -> None:
    async def scenario(server: ControllerServer) -> None:
        with pytest.raises(BrokerUnavailable):
            await ask(server, ListGroupsRequest(states_filter=[], types_filter=[]), 5)

    run(scenario)
