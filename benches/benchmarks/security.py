"""TLS and logins: records over TLS 1.3, mutual handshakes, and a thousand logins at once."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.support.broker_process import BrokerProcess
from tests.support.probe import free_port

from benches.contestants import BASELINE, Contestant
from benches.generators import LoadFailedError, create_topic
from benches.model import Bench, Benchmark, Figure, Goal
from ottla.security.issuing import LOCAL_HOSTS, Issuer

_OTTLA: Final = frozenset({"ottla", "kafka"})
_TOPIC: Final = "records"
_PARTITIONS: Final = 6
_USER: Final = "alice"
_PASSWORD: Final = "wonderland"
_LOGINS: Final = 1000
_DAYS: Final = 30


def _load(module: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        raise LoadFailedError(f"{module} {arguments[0]} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


class _Protected:
    """A broker with listeners for plain text, TLS, mutual TLS and SCRAM."""

    def __init__(self, broker: BrokerProcess, certificates: Path, contestant: Contestant) -> None:
        self.broker = broker
        self.authority = certificates / "ca.pem"
        self.own = certificates / "client.pem"
        names = ("TLS", "MUTUAL", "LOGIN")
        ports = {name: free_port() for name in names}
        self.tls, self.mutual, self.login = (f"127.0.0.1:{ports[name]}" for name in names)
        listeners = [f"PLAINTEXT://{broker.bootstrap}", *(f"{name}://127.0.0.1:{ports[name]}" for name in names)]
        protocols = "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL,LOGIN:SASL_PLAINTEXT"
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.enabled.protocols": "TLSv1.3",
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.login.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
        if contestant.name == BASELINE:
            controller = f"127.0.0.1:{free_port()}"
            settings["controller.quorum.voters"] = f"1@{controller}"
            settings["advertised.listeners"] = ",".join(listeners)
            listeners.append(f"CONTROLLER://{controller}")
            protocols += ",CONTROLLER:PLAINTEXT"
        settings |= {"listeners": ",".join(listeners), "listener.security.protocol.map": protocols}
        broker.properties.update(settings)

    @property
    def client(self) -> tuple[str, ...]:
        """The arguments of `librdkafka_load` for TLS."""
        return "--client", "security.protocol=SSL", "--client", f"ssl.ca.location={self.authority}"


@contextmanager
def _protected(contestant: Contestant, bench: Bench) -> Iterator[_Protected]:
    with tempfile.TemporaryDirectory() as directory, bench.broker(contestant, started=False) as broker:
        certificates = Path(directory)
        issuer = Issuer(_DAYS)
        issuer.write(certificates / "ca.pem")
        issuer.issue(certificates / "broker.pem", "broker", LOCAL_HOSTS)
        issuer.issue(certificates / "client.pem", "client")
        found = _Protected(broker, certificates, contestant)
        broker.start()
        yield found


def _measure_load(contestant: Contestant, bench: Bench) -> dict[str, float]:
    records = bench.scaled(2_000_000, 300_000)
    with _protected(contestant, bench) as protected:
        broker = protected.broker
        for topic, count in (("warm", records // 5), (_TOPIC, records)):
            create_topic(broker.bootstrap, topic, _PARTITIONS)
            bench.say(f"{contestant.title}: {count:,} records of 1 KB over TLS")
            before = broker.cpu_seconds()
            arguments = ("--bootstrap", protected.tls, "--topic", topic, "--records", str(count))
            written = _load("benches.librdkafka_load", "produce", *arguments, *protected.client)
            middle = broker.cpu_seconds()
            read = _load("benches.librdkafka_load", "consume", *arguments, *protected.client)
            after = broker.cpu_seconds()
    return {
        "produce": written["records_per_s"],
        "consume": read["records_per_s"],
        "produce_cpu_s": (middle - before) / (records / 1e6),
        "consume_cpu_s": (after - middle) / (records / 1e6),
    }


def _measure_logins(contestant: Contestant, bench: Bench) -> dict[str, float]:
    count = bench.scaled(3000, 500)
    with _protected(contestant, bench) as protected:
        broker = protected.broker
        certificates = (str(protected.authority), str(protected.own))
        bench.say(f"{contestant.title}: {count} mutual handshakes")
        _load("benches.security_load", "handshakes", protected.mutual, str(count), *certificates)
        before = broker.cpu_seconds()
        _load("benches.security_load", "handshakes", protected.mutual, str(count), *certificates)
        handshakes = count / (broker.cpu_seconds() - before)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(_USER, info, _PASSWORD.encode())
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.alter_user_scram_credentials([change])[_USER].result(30)
        bench.say(f"{contestant.title}: {_LOGINS} logins at once")
        login = ("logins", protected.login, str(_LOGINS), _USER, _PASSWORD)
        _load("benches.security_load", *login)
        other = subprocess.Popen(
            [sys.executable, "-m", "benches.security_load", "bystander", broker.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            before = broker.cpu_seconds()
            last_s = _load("benches.security_load", *login)["seconds"]
            cpu_s = broker.cpu_seconds() - before
            output, _ = other.communicate(timeout=60)
        finally:
            other.kill()
    return {
        "handshakes": handshakes,
        "logins_s": last_s,
        "logins_cpu_s": cpu_s,
        "other_ms": json.loads(output)["worst_ms"],
    }


SECURITY_LOAD: Final = Benchmark(
    "security-load",
    "1 KB records, 6 partitions, acks=all, over TLS 1.3",
    (
        Figure("produce", "librdkafka produce", "records/s", "higher", {"ottla": Goal("ratio", 1.0)}),
        Figure("consume", "librdkafka consume", "records/s", "higher", {"ottla": Goal("ratio", 1.0)}),
        Figure("produce_cpu_s", "produce, broker CPU", "s/million", "lower", {"ottla": Goal("ratio", 0.6)}),
        Figure("consume_cpu_s", "consume, broker CPU", "s/million", "lower", {"ottla": Goal("ratio", 0.6)}),
    ),
    _measure_load,
    disk_gb=3,
    contestants=_OTTLA,
)
SECURITY_LOGINS: Final = Benchmark(
    "security-logins",
    "handshakes and logins",
    (
        Figure("handshakes", "mutual TLS 1.3, per CPU second", "1/s", "higher", {"ottla": Goal("ratio", 1.0)}),
        Figure("logins_s", f"{_LOGINS:,} by SCRAM at once, the last", "s", "lower", {"ottla": Goal("ratio", 0.5)}),
        Figure("logins_cpu_s", "the same, broker CPU", "s", "lower"),
        Figure("other_ms", "the same, longest wait of another client", "ms", "lower", {"ottla": Goal("value", 20)}),
    ),
    _measure_logins,
    disk_gb=0.2,
    contestants=_OTTLA,
)
