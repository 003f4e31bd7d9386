"""The examples of docs/admin.md, run as they stand there against a broker in this process."""

import re
from pathlib import Path

import pytest
from tests.support.raw_client import ask

from ottla.admin import Admin
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.testing import Broker

PAGE = (Path(__file__).parents[2] / "docs" / "admin.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(code: str, ottla_session_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    ask(ottla_session_broker.bootstrap, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    exec(compile(code.replace("localhost:9092", ottla_session_broker.bootstrap), "docs/admin.md", "exec"), {})
    printed = capsys.readouterr().out
    if "NotFound" in code:
        assert printed.splitlines() == [
            "transactional id 'payments' does not exist",
            "no-such-group: the group does not exist",
        ]
    if "Subscription(" in code:
        assert "org.apache.kafka.producer." in printed


def test_each_call_is_listed() -> None:
    calls = {name for name in dir(Admin) if not name.startswith("_")} - {"close", "run"}
    table = PAGE[PAGE.index("## Calls") : PAGE.index("### End transactions")]
    assert set(re.findall(r"`(\w+)`", table)) == calls
    assert all(getattr(Admin, name).__doc__ for name in calls)
