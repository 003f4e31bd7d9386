"""A seed's changes by Ottla's worker and by Kafka Connect with Debezium's connector: the same events, field by field.

Nothing is killed here, and both have read everything before a table changes: Debezium takes keys and types from the
catalog as it is when it reads, and waits there for a session that alters a table. So no open transaction alters one.
Of what docs/connectors.md says is other than Debezium's, a default that Debezium leaves out comes up here.
"""

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.connect.generated.plan import MARKER, Plan, Statement, make_plan
from tests.connect.generated.running import MariaDbServer, PostgresServer, Reader, Sessions
from tests.connect.shipped.comparing import OURS, THEIRS, Topics, fields_differ, operations_differ, written_by_both
from tests.support.connect_process import GenuineConnect, GenuineMariaDbConnect, OttlaConnect
from tests.support.eventually import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PREFIXES = (OURS, THEIRS)
CHANGES_TABLE = re.compile("ALTER|CREATE|DROP")
LEFT_OUT = re.compile(r"has \['type', 'optional', 'default', 'field'\], Debezium's \['type', 'optional', 'field'\]$")


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def plan(request: pytest.FixtureRequest) -> Plan:
    return make_plan(7, request.param, statements=200, kills=0, biggest=50, alters_in_transactions=False)


@pytest.fixture(scope="module")
def topics(plan: Plan) -> Iterator[Topics]:
    """What both have written."""
    is_postgres = plan.database == "postgres"
    genuine = GenuineConnect if is_postgres else GenuineMariaDbConnect
    with (
        PostgresServer() if is_postgres else MariaDbServer() as server,
        Broker() as broker,
        genuine(broker.bootstrap, offset_flush_interval_ms="1000") as theirs,
        OttlaConnect(broker.bootstrap, group_id="ours", config_storage_topic="ours-configs",
                     offset_storage_topic="ours-offsets", status_storage_topic="ours-status") as ours,
        server.database("generated"),
    ):  # fmt: skip
        sessions, reader = Sessions(server, "generated"), Reader(broker.bootstrap)
        markers = iter(range(1, 1_000_000))

        def catch_up(*prefixes: str) -> None:
            marker = next(markers)
            sessions.ask(-1, f"INSERT INTO {MARKER} VALUES ({marker})")
            names = [server.table("generated", MARKER).replace("generated", each, 1) for each in prefixes]
            eventually(lambda: all(has(reader, name, marker) for name in names), timeout_s=120)

        for step in plan.before:
            assert isinstance(step, Statement)
            sessions.do(step)
        sessions.ask(-1, f"INSERT INTO {MARKER} VALUES (0)")  # of an empty last table Debezium tells no last row
        for worker, prefix in zip((ours, theirs), PREFIXES, strict=True):
            worker.put("captures", config(server, broker.bootstrap, prefix))
            worker.wait("captures", "RUNNING")
        catch_up(*PREFIXES)
        for step in plan.steps:
            if isinstance(step, Statement):
                if CHANGES_TABLE.match(step.sql):
                    catch_up(*PREFIXES)
                sessions.do(step)
        catch_up(*PREFIXES)
        sessions.close()
        reader.close()
        known = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
        found = written_by_both(broker.bootstrap, list(known))
        found.pop(server.table("generated", MARKER).partition(".")[2])  # read at other moments by their snapshots
        yield found


def has(reader: Reader, topic: str, marker: int) -> bool:
    reader.read([topic])
    return any(json.loads(each.key())["payload"] == {"id": marker} for each in reader.messages.get(topic, ()))


def config(server: PostgresServer | MariaDbServer, bootstrap: str, prefix: str) -> dict[str, str]:
    both = server.config("generated") | {
        "topic.prefix": prefix,
        "decimal.handling.mode": "string",
        "binary.handling.mode": "hex",
    }
    if server.kind == "postgres":
        return both | {
            "plugin.name": "pgoutput",
            "database.password": "unused",
            "slot.name": prefix,
            "publication.name": prefix,
        }
    return both | {
        "database.server.id": {OURS: "6001", THEIRS: "6002"}[prefix],
        "include.schema.changes": "false",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"history-{prefix}",
    }


def test_the_events_are_of_the_same_operations(topics: Topics) -> None:
    assert sum(len(ours) for ours, _ in topics.values()) > 100
    assert operations_differ(topics) == []


def test_events_are_the_same_field_by_field(topics: Topics) -> None:
    found = [each for each in fields_differ(topics) if not LEFT_OUT.search(each)]
    assert not found, "\n".join(found)
