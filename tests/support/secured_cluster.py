"""A cluster of genuine Kafka 3.9 and Ottla in which everybody has to prove a name.

Brokers and users connect over SASL_SSL, and brokers to ZooKeeper over TLS with a password. Nodes are protected.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.genuine39 import GenuineKafka39
from tests.support.mixed_cluster import KAFKA, MixedCluster
from tests.support.probe import free_port
from tests.support.secure_zookeeper import LINE, SecureZooKeeper

MODULES: Final = "org.apache.kafka.common.security"
USERS: Final = {"admin": "admin-secret", "alice": "alice-secret"}
"""Of PLAIN."""
_SCRAM: Final = f'{MODULES}.scram.ScramLoginModule required username="broker" password="between";'
_PLAIN: Final = f"{MODULES}.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{password}"' for user, password in USERS.items()
)


class SecuredCluster(MixedCluster):
    """`addresses` has the listener of each broker for users."""

    def __init__(self, zookeeper: SecureZooKeeper, root: str, directory: Path, *, ottlas: int = 1) -> None:
        """`directory` gets the certificates."""
        super().__init__(f"{zookeeper.secure_connect}/{root}", ottlas=ottlas)
        authority = Authority("brokers")
        self.ca = authority.write(directory / "brokers-ca.pem")
        self.addresses: dict[int, str] = {}
        jaas = directory / "kafka.jaas"
        jaas.write_text(f"Client {{\n    {LINE}\n}};\n")
        for number, broker in self.brokers.items():
            store = authority.issue(f"broker-{number}").write_pem(directory / f"broker-{number}.pem")
            self.addresses[number] = f"127.0.0.1:{free_port()}"
            broker.properties.update(self._listeners(broker, number, store))
            own = {**zookeeper.settings(), "zookeeper.connect": f"{zookeeper.secure_connect}/{root}"}
            if number == KAFKA:
                assert isinstance(broker, GenuineKafka39)
                del own["zookeeper.sasl.jaas.config"]
                own["zookeeper.clientCnxnSocket"] = "org.apache.zookeeper.ClientCnxnSocketNetty"
                own["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
                broker.jvm_options = (f"-Djava.security.auth.login.config={jaas}",)
            else:
                own["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
                own["initial.scram.users"] = "SCRAM-SHA-512=[name=broker,password=between]"
            broker.properties.update(own)

    def _listeners(self, broker: BrokerProcess, number: int, store: Path) -> Mapping[str, str]:
        addresses = (
            f"PLAINTEXT://{broker.bootstrap},BROKERS://127.0.0.1:{free_port()},OUTSIDE://{self.addresses[number]}"
        )
        return {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,OUTSIDE:SASL_SSL",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.brokers.scram-sha-512.sasl.jaas.config": _SCRAM,
            "listener.name.outside.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
            "listener.name.outside.plain.sasl.jaas.config": f"{_PLAIN};",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "super.users": "User:ANONYMOUS;User:broker;User:admin",
        }

    def login(self, number: int | None, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, Any]:
        """A client's settings for a broker, or for all."""
        return {
            "bootstrap.servers": ",".join(self.addresses.values()) if number is None else self.addresses[number],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
