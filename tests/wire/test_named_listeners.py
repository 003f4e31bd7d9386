"""Several listeners of one broker, each with its own prefix, certificate, mechanism and advertised address; IPv6."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.support.certificates import Authority
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port

MODULES = "org.apache.kafka.common.security"


class Listener(NamedTuple):
    """How a client reaches one, and the address that it is given there."""

    settings: dict[str, Any]
    advertised: tuple[str, int]


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Listener]]:
    directory = tmp_path_factory.mktemp("listeners")
    inside, outside = Authority("inside"), Authority("outside")
    ports = {name: free_port() for name in ("V6", "INSIDE", "OUTSIDE")}
    broker = OttlaProcess()
    broker.properties.update(
        {
            "listeners": (
                f"PLAINTEXT://{broker.bootstrap},V6://[::1]:{ports['V6']},INSIDE://127.0.0.1:{ports['INSIDE']},"
                f"OUTSIDE://127.0.0.1:{ports['OUTSIDE']}"
            ),
            "advertised.listeners": (
                f"PLAINTEXT://{broker.bootstrap},V6://[::1]:{ports['V6']},INSIDE://127.0.0.1:{ports['INSIDE']},"
                f"OUTSIDE://localhost:{ports['OUTSIDE']}"
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,V6:SSL,INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(inside.issue("broker", "::1").write_pem(directory / "inside.pem")),
            "listener.name.outside.ssl.keystore.type": "PEM",
            "listener.name.outside.ssl.keystore.location": str(
                outside.issue("broker", "localhost").write_pem(directory / "outside.pem")
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_alice="inside";'
            ),
            "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "initial.scram.users": "SCRAM-SHA-512=[name=alice,password=outside]",
        }
    )
    trusts = {
        name: str(each.write(directory / f"{name}-ca.pem")) for name, each in (("V6", inside), ("OUTSIDE", outside))
    }
    with broker:
        yield {
            "V6": Listener(
                {
                    "bootstrap.servers": f"[::1]:{ports['V6']}",
                    "security.protocol": "SSL",
                    "ssl.ca.location": trusts["V6"],
                },
                ("::1", ports["V6"]),
            ),
            "INSIDE": Listener(
                {
                    "bootstrap.servers": f"127.0.0.1:{ports['INSIDE']}",
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "alice",
                    "sasl.password": "inside",
                },
                ("127.0.0.1", ports["INSIDE"]),
            ),
            "OUTSIDE": Listener(
                {
                    "bootstrap.servers": f"localhost:{ports['OUTSIDE']}",
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": trusts["OUTSIDE"],
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": "alice",
                    "sasl.password": "outside",
                },
                ("localhost", ports["OUTSIDE"]),
            ),
        }


@pytest.mark.parametrize("name", ["V6", "INSIDE", "OUTSIDE"])
def test_each_listener_leads_to_itself(listeners: dict[str, Listener], name: str) -> None:
    settings, advertised = listeners[name]
    (broker,) = AdminClient(settings).list_topics(timeout=10).brokers.values()
    assert (str(broker.host).strip("[]"), broker.port) == advertised
    producer = Producer(settings)
    failures: list[Any] = []
    producer.produce("orders", b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(20) == 0
    assert failures == [None]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("V6", "ssl.ca.location"),
        ("INSIDE", "sasl.password"),
        ("OUTSIDE", "ssl.ca.location"),
        ("OUTSIDE", "sasl.password"),
        ("OUTSIDE", "sasl.mechanism"),
    ],
)
def test_what_holds_for_one_listener_does_not_for_another(
    listeners: dict[str, Listener], name: str, changed: str
) -> None:
    other = {"V6": "OUTSIDE", "INSIDE": "OUTSIDE", "OUTSIDE": "V6" if changed.startswith("ssl") else "INSIDE"}[name]
    settings = listeners[name].settings | {changed: listeners[other].settings[changed], "error_cb": lambda _: None}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=1.5)
