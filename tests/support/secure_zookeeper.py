"""A genuine ZooKeeper that speaks TLS at one more port, and knows one user by password, and brokers by Kerberos."""

from pathlib import Path
from typing import Final

from tests.support.certificates import Authority
from tests.support.kerberos import Realm, key_line
from tests.support.probe import free_port
from tests.support.zookeeper import ZooKeeperServer

LINE: Final = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="broker" password="secret";'
"""The login of brokers, as a section `Client` has it."""
KERBEROS_SERVICE: Final = "zookeeper/localhost"


class SecureZooKeeper(ZooKeeperServer):
    """Only clients that have logged in get a session, by `connect` without TLS and by `secure_connect` with it.

    With a realm they log in by Kerberos, without one by password.
    """

    def __init__(self, directory: Path, authority: Authority, *, realm: Realm | None = None) -> None:
        """`directory` has its certificates (`ca.pem`)."""
        self.secure_port = free_port()
        self.authority_file = authority.write(directory / "ca.pem")
        store = authority.issue("zookeeper", "localhost").write_pem(directory / "zookeeper.pem")
        line = (
            'org.apache.zookeeper.server.auth.DigestLoginModule required user_broker="secret";'
            if realm is None
            else key_line(realm.add(KERBEROS_SERVICE), KERBEROS_SERVICE)
        )
        jaas = directory / "zookeeper.jaas"
        jaas.write_text(f"Server {{\n    {line}\n}};\n")
        self.jvm_options = (f"-Djava.security.auth.login.config={jaas}",)
        if realm is not None:
            self.jvm_options += (f"-Djava.security.krb5.conf={realm.conf}",)
        super().__init__(
            properties={
                "secureClientPort": str(self.secure_port),
                "secureClientPortAddress": "127.0.0.1",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": str(store),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(self.authority_file),
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "want",
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                "enforce.auth.enabled": "true",
                "enforce.auth.schemes": "sasl,x509",
                "kerberos.removeHostFromPrincipal": "true",
                "kerberos.removeRealmFromPrincipal": "true",
            }
        )

    @property
    def secure_connect(self) -> str:
        """`host:port` with TLS."""
        return f"localhost:{self.secure_port}"

    def settings(self) -> dict[str, str]:
        """Those of a broker that uses all of it."""
        return {
            "zookeeper.connect": self.secure_connect,
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.authority_file),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.sasl.jaas.config": LINE,
            "zookeeper.set.acl": "true",
        }
