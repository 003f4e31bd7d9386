"""The broker's settings about how ZooKeeper is reached that Ottla acts on; a part of `broker_settings`.

They are Kafka 3.9's, the last release that had them, but for `zookeeper.sasl.jaas.config`: Kafka takes that line from
the section `Client` of a file that its virtual machine is given.
"""

from typing import Final

from ottla.config.setting import Change, Kind, Limit, OneOf, Setting


def _zookeeper(name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None) -> Setting:
    return Setting(f"zookeeper.{name}", kind, default, doc, limit, Change.READ_ONLY)


ZOOKEEPER: Final = (
    _zookeeper(
        "metadata.migration.enable",
        Kind.BOOLEAN,
        "false",
        "Move this cluster from ZooKeeper to the quorum of controllers that `controller.quorum.*` names, once all of "
        "its brokers have this setting. Afterwards there is no way back.",
    ),
    _zookeeper("ssl.client.enable", Kind.BOOLEAN, "false", "Speak TLS to ZooKeeper."),
    _zookeeper(
        "ssl.keystore.location", Kind.STRING, None, "File with the key and the certificate that ZooKeeper is shown."
    ),
    _zookeeper(
        "ssl.keystore.password", Kind.PASSWORD, None, "Password of that file; for PEM, of a key that is encrypted."
    ),
    _zookeeper(
        "ssl.keystore.type", Kind.STRING, None, "PEM, PKCS12 or JKS; without it, PEM for a name that ends in `.pem`."
    ),
    _zookeeper("ssl.truststore.location", Kind.STRING, None, "File with the certificates that vouch for ZooKeeper."),
    _zookeeper("ssl.truststore.password", Kind.PASSWORD, None, "Password of that file, not for PEM."),
    _zookeeper("ssl.truststore.type", Kind.STRING, None, "As `zookeeper.ssl.keystore.type`."),
    _zookeeper(
        "ssl.enabled.protocols",
        Kind.LIST,
        "TLSv1.2,TLSv1.3",
        "Versions of TLS that are spoken with ZooKeeper.",
        OneOf(("TLSv1.2", "TLSv1.3")),
    ),
    _zookeeper("ssl.cipher.suites", Kind.LIST, "", "As `ssl.cipher.suites`, towards ZooKeeper."),
    _zookeeper(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "HTTPS",
        "How the name of a server is checked against its certificate; empty for not at all.",
    ),
    _zookeeper(
        "ssl.crl.enable",
        Kind.BOOLEAN,
        "false",
        "Refuse revoked certificates of ZooKeeper, by the revocation lists (PEM) in the trust store.",
    ),
    _zookeeper(
        "set.acl",
        Kind.BOOLEAN,
        "false",
        "Let only brokers change the nodes that brokers make in ZooKeeper, and read the secrets among them. Needs a "
        "login, or TLS with a certificate.",
    ),
    _zookeeper(
        "sasl.jaas.config",
        Kind.PASSWORD,
        None,
        "Ottla's own: the login at ZooKeeper, as the section `Client` of Kafka's JAAS file has it. "
        '`org.apache.zookeeper.server.auth.DigestLoginModule required username="broker" password="...";`, or '
        "`Krb5LoginModule` with a key table.",
    ),
)
