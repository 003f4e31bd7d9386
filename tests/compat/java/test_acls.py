"""Kafka's own tool for access rules: what it adds, Ottla lists, and the other way round."""

from tests.compat.cli.program import OttlaProgram
from tests.support.ottla_process import OttlaProcess
from tests.support.tool_server import kafka_tool

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_kafkas_tool_and_ours_make_the_same_rules() -> None:
    with OttlaProcess(properties=SETTINGS) as broker:
        ottla = OttlaProgram(broker.bootstrap)

        def tool(*arguments: str) -> str:
            return kafka_tool("AclCommand", "--bootstrap-server", broker.bootstrap, *arguments).stdout

        for role, names in (("producer", ("--topic", "orders")), ("consumer", ("--topic", "orders", "--group", "g"))):
            tool("--add", "--allow-principal", "User:alice", f"--{role}", *names)
            by_kafka = ottla.json("acl", "list")
            assert by_kafka
            ottla("acl", "revoke", role, "alice", *names)
            assert ottla.json("acl", "list") == []
            ottla("acl", "grant", role, "alice", *names)
            assert ottla.json("acl", "list") == by_kafka
            ottla("acl", "revoke", role, "alice", *names)
        ottla("acl", "grant", "consumer", "bob", "--topic", "o", "--group", "g", "--prefix", "--host", "10.0.0.1")
        listed = tool("--list")
        assert "resourceType=TOPIC, name=o, patternType=PREFIXED" in listed
        assert "principal=User:bob, host=10.0.0.1, operation=READ, permissionType=ALLOW" in listed
