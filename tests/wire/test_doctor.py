"""`ottla doctor` with brokers that are well, and with the usual mistakes."""

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

Remarks = dict[str, tuple[str, str]]


def doctor(*arguments: str, code: int) -> Remarks:
    """The verdict and finding about each subject."""
    ottla = Path(sys.executable).with_name("ottla")
    done = subprocess.run(
        [ottla, "doctor", *arguments, "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {each["subject"]: (each["verdict"], each["found"]) for each in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaProcess]:
    with OttlaProcess() as started:
        yield started


def test_a_broker_that_is_well(broker: OttlaProcess) -> None:
    found = doctor("--bootstrap", broker.bootstrap, code=0)
    assert {verdict for verdict, _ in found.values()} <= {"ok", "warning"}
    assert found["cluster"][1].endswith("with 1 brokers")
    assert found["partitions"][0] == "ok"


def test_an_advertised_address_that_nobody_reaches(broker: OttlaProcess) -> None:
    nowhere = free_port()
    wrong = OttlaProcess(properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{nowhere}"})
    with wrong:
        found = doctor("--bootstrap", wrong.bootstrap, code=1)
    verdict, text = found[f"broker 1 at 127.0.0.1:{nowhere}"]
    assert (verdict, text) == ("problem", "cannot be reached at 127.0.0.1 (connection refused)")


def test_an_advertised_address_that_cannot_be_one() -> None:
    wrong = OttlaProcess(properties={"advertised.listeners": "PLAINTEXT://a..b:9092"})
    with wrong:
        found = doctor("--bootstrap", wrong.bootstrap, code=1)
    verdict, text = found["broker 1 at a..b:9092"]
    assert verdict == "problem"
    assert text.startswith("the name has no address")


def test_an_advertised_address_of_another_cluster(broker: OttlaProcess) -> None:
    with OttlaProcess(properties={"advertised.listeners": f"PLAINTEXT://{broker.bootstrap}"}) as lost:
        found = doctor("--bootstrap", lost.bootstrap, code=0)
    assert found["cluster"][0] == "ok"


def test_a_name_without_address_and_a_port_where_nobody_listens() -> None:
    found = doctor("--bootstrap", f"no-such-host.invalid:9092,127.0.0.1:{free_port()}", code=1)
    assert all(verdict == "problem" for verdict, _ in found.values())
    assert "the name has no address" in found["bootstrap no-such-host.invalid:9092"][1]


def test_a_port_of_another_server() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        found = doctor("--bootstrap", f"127.0.0.1:{other.server_port}", code=1)
        other.shutdown()
        thread.join()
    ((verdict, text),) = found.values()
    assert verdict == "problem"
    assert "does not speak Kafka's protocol" in text


def test_settings_and_machine_of_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://0.0.0.0:9092\nlog.retention.hour=3\nlog.dirs={file}/x\n")
    found = doctor(str(file), "--server-only", code=1)
    assert "did you mean log.retention.hours" in found["settings"][1]
    assert found["listener PLAINTEXT"][0] == "warning"
    assert found[f"log directory {file}/x"][0] == "problem"
    file.write_text("log.dirs=x\nnum.partitions=none\n")
    assert doctor(str(file), "--server-only", code=1)["settings"][0] == "problem"
