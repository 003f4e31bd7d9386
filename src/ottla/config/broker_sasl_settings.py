"""The broker's settings about SASL that Ottla acts on; a part of `broker_settings`.

Most are read with the prefix of a listener, or of a listener and a mechanism, first: see `sasl`.
"""

from typing import Final

from ottla.config.changeable import CHANGEABLE
from ottla.config.setting import Change, Kind, Limit, Setting
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1


def _sasl(name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None) -> Setting:
    return Setting(name, kind, default, doc, limit, CHANGEABLE.get(name, Change.READ_ONLY))


SASL: Final = (
    _sasl(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        "GSSAPI",
        "SASL mechanisms that are offered: GSSAPI, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.",
    ),
    _sasl(
        "sasl.mechanism.inter.broker.protocol",
        Kind.STRING,
        "GSSAPI",
        "SASL mechanism by which this broker logs in to others.",
    ),
    _sasl(
        "sasl.mechanism.controller.protocol",
        Kind.STRING,
        "GSSAPI",
        "SASL mechanism by which this node logs in to controllers of its quorum.",
    ),
    _sasl(
        "sasl.server.max.receive.size",
        Kind.INT,
        "524288",
        "Largest request of a client that has not authenticated, in bytes.",
    ),
    _sasl(
        "connections.max.reauth.ms",
        Kind.LONG,
        "0",
        "How long a login lasts before the client has to authenticate again (KIP-368); 0 for no limit.",
    ),
    _sasl(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        "100",
        "Pause before a refused login is answered and the connection closed: it slows guessing down.",
        AT_LEAST_0,
    ),
    _sasl(
        "sasl.kerberos.service.name",
        Kind.STRING,
        None,
        "First part of the Kerberos principals of the other brokers, to which this one logs in by GSSAPI.",
    ),
    _sasl(
        "sasl.kerberos.principal.to.local.rules",
        Kind.LIST,
        "DEFAULT",
        "Rules in Kafka's form from Kerberos principals to names of users, the first of which that applies is taken. "
        "DEFAULT gives the first component of principals of the default realm. Patterns are those of RE2.",
    ),
    _sasl(
        "sasl.oauthbearer.token.endpoint.url",
        Kind.STRING,
        None,
        "Where this broker gets the tokens with which it logs in to others: an https URL of a provider, or a file URL.",
    ),
    _sasl(
        "sasl.oauthbearer.client.credentials.client.id",
        Kind.STRING,
        None,
        "Name of this broker at the provider (client credentials grant).",
    ),
    _sasl("sasl.oauthbearer.client.credentials.client.secret", Kind.PASSWORD, None, "Secret that goes with it."),
    _sasl("sasl.oauthbearer.scope", Kind.STRING, None, "Scope that is asked for in those tokens."),
    _sasl(
        "sasl.oauthbearer.jwks.endpoint.url",
        Kind.STRING,
        None,
        "Keys of the provider whose tokens are accepted (JWKS): an https or file URL.",
    ),
    _sasl(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Kind.LONG,
        "3600000",
        "Age at which the provider's keys are read again. A token that names an unknown key has them read, too.",
    ),
    _sasl(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        Kind.LONG,
        "100",
        "Pause after keys could not be read, doubled each time.",
    ),
    _sasl("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, "10000", "Longest such pause."),
    _sasl("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "Issuer that a token must name."),
    _sasl(
        "sasl.oauthbearer.expected.audience",
        Kind.LIST,
        "",
        "Audiences, one of which a token must name. Without any, a token that names an audience is refused.",
    ),
    _sasl("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope", "Claim with the scope: a text or a list."),
    _sasl("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "Claim with the name of the principal."),
    _sasl(
        "sasl.oauthbearer.clock.skew.seconds",
        Kind.INT,
        "30",
        "Difference of clocks that is tolerated in tokens.",
        AT_LEAST_0,
    ),
)

DELEGATION_TOKENS: Final = (
    Setting(
        "delegation.token.secret.key",
        Kind.PASSWORD,
        None,
        "Key of the secrets of delegation tokens, the same at all brokers; without one there are no such tokens.",
        None,
        Change.READ_ONLY,
    ),
    Setting(
        "delegation.token.max.lifetime.ms",
        Kind.LONG,
        "604800000",
        "How long a delegation token can be renewed.",
        AT_LEAST_1,
        Change.READ_ONLY,
    ),
    Setting(
        "delegation.token.expiry.time.ms",
        Kind.LONG,
        "86400000",
        "How long a delegation token lasts without renewal.",
        AT_LEAST_1,
        Change.READ_ONLY,
    ),
    Setting(
        "delegation.token.expiry.check.interval.ms",
        Kind.LONG,
        "3600000",
        "How often expired delegation tokens are removed.",
        AT_LEAST_1,
        Change.READ_ONLY,
    ),
)
INITIAL_USERS: Final = Setting(
    "initial.scram.users",
    Kind.PASSWORD,
    None,
    "Ottla's own. Users of SCRAM that exist before the first start, as `kafka-storage.sh format --add-scram` does: "
    "`SCRAM-SHA-512=[name=admin,password=...]`, several after commas. A user that is there keeps the password. "
    "Under a quorum of controllers the setting of the controllers counts, when a new cluster begins.",
    None,
    Change.READ_ONLY,
)
