"""Kafka's own clients and tools over TLS, and key stores that Java's `keytool` has made."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.genuine import ToolFailedError
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.requirements import java_program
from tests.support.tool_server import kafka_tool

PASSWORD = "changeit"


def keytool(*arguments: str) -> None:
    program = Path(java_program()).resolve().with_name("keytool")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key store of the broker and what clients trust, by keytool; a key store of a client, by this test."""
    directory = tmp_path_factory.mktemp("stores")
    common = ("-storepass", PASSWORD, "-keypass", PASSWORD, "-alias", "broker")
    store = str(directory / "broker.jks")
    keytool(
        *("-genkeypair", "-keystore", store, "-keyalg", "RSA", "-keysize", "2048", "-validity", "30", *common),
        *("-dname", "CN=localhost, OU=Streams", "-ext", "SAN=DNS:localhost,IP:127.0.0.1"),
    )
    certificate = str(directory / "broker.crt")
    keytool("-exportcert", "-keystore", store, "-file", certificate, "-rfc", "-storepass", PASSWORD, "-alias", "broker")
    trusted = str(directory / "clients-trust.jks")
    keytool("-importcert", "-noprompt", "-keystore", trusted, "-file", certificate, *common)
    authority = Authority()
    authority.issue("client").write_pkcs12(directory / "client.p12", PASSWORD)
    keytool(
        *("-importcert", "-noprompt", "-keystore", str(directory / "brokers-trust.jks"), *common),
        *("-file", str(authority.write(directory / "ca.pem"))),
    )
    return directory


@pytest.fixture(scope="module")
def broker(stores: Path) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker whose second listener wants certificates of clients, with settings as in Kafka's guide."""
    running = OttlaProcess()
    address = f"127.0.0.1:{free_port()}"
    running.properties.update(
        {
            "listeners": f"PLAINTEXT://{running.bootstrap},SSL://{address}",
            "ssl.keystore.location": str(stores / "broker.jks"),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.location": str(stores / "brokers-trust.jks"),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
        }
    )
    with running:
        yield running, address


def client_config(directory: Path, stores: Path, **more: str) -> str:
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(stores / "clients-trust.jks"),
        "ssl.truststore.password": PASSWORD,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    path = directory / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def own_key(stores: Path) -> dict[str, str]:
    return {
        "ssl_keystore_type": "PKCS12",
        "ssl_keystore_location": str(stores / "client.p12"),
        "ssl_keystore_password": PASSWORD,
    }


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_tools_and_clients_of_kafka(
    broker: tuple[OttlaProcess, str], stores: Path, tmp_path: Path, protocol: str
) -> None:
    _, address = broker
    topic = f"java-{protocol}"
    config = client_config(tmp_path, stores, **own_key(stores), ssl_enabled_protocols=protocol, ssl_protocol=protocol)
    at = ("--bootstrap-server", address)
    kafka_tool("TopicCommand", *at, "--command-config", config, "--create", "--topic", topic)
    lines = [f"{number}-{'x' * 3000}" for number in range(500)]
    kafka_tool(
        "ConsoleProducer",
        *at,
        "--topic",
        topic,
        "--command-config",
        config,
        stdin="".join(f"{line}\n" for line in lines),
    )
    received = kafka_tool(
        *("ConsoleConsumer", *at, "--topic", topic, "--command-config", config, "--from-beginning"),
        *("--max-messages", str(len(lines)), "--timeout-ms", "30000"),
    )
    assert received.stdout.splitlines() == lines


def test_a_client_without_a_certificate_is_refused(
    broker: tuple[OttlaProcess, str], stores: Path, tmp_path: Path
) -> None:
    running, address = broker
    config = client_config(tmp_path, stores)
    with pytest.raises(ToolFailedError):
        kafka_tool("TopicCommand", "--bootstrap-server", address, "--command-config", config, "--list")
    eventually(lambda: "the client sent no certificate, and ssl.client.auth is required" in running.log_text())
    assert PASSWORD not in running.log_text()
