"""The settings of security (delegation tokens, SASL, TLS), which Ottla knows and does not act on."""

from typing import Final

from ottla.config.not_acted_on import other
from ottla.config.setting import Kind, OneOf, Range

_SECURITY_DELEGATION_TOKENS: Final = ()

_SECURITY_SASL: Final = (
    other("sasl.client.callback.handler.class", Kind.CLASS, None, "Java class that answers a SASL client's questions."),
    other("sasl.jaas.config", Kind.PASSWORD, None, "Login modules of SASL, in JAAS's form."),
    other("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", "The kinit program."),
    other(
        "sasl.kerberos.min.time.before.relogin",
        Kind.LONG,
        "60000",
        "Shortest time, in ms, between two Kerberos logins.",
    ),
    other("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, "0.05", "Random part of the time to a ticket's renewal."),
    other(
        "sasl.kerberos.ticket.renew.window.factor",
        Kind.DOUBLE,
        "0.8",
        "Share of a ticket's life after which it is renewed.",
    ),
    other("sasl.login.callback.handler.class", Kind.CLASS, None, "Java class that answers a login's questions."),
    other("sasl.login.class", Kind.CLASS, None, "Java class that logs in."),
    other("sasl.login.connect.timeout.ms", Kind.INT, None, "How long to try to reach the identity provider."),
    other("sasl.login.read.timeout.ms", Kind.INT, None, "How long to wait for the identity provider's answer."),
    other(
        "sasl.login.refresh.buffer.seconds", Kind.SHORT, "300", "A login is renewed at least so long before it expires."
    ),
    other("sasl.login.refresh.min.period.seconds", Kind.SHORT, "60", "A login is renewed at earliest after so long."),
    other("sasl.login.refresh.window.factor", Kind.DOUBLE, "0.8", "Share of a login's life after which it is renewed."),
    other("sasl.login.refresh.window.jitter", Kind.DOUBLE, "0.05", "Random part of that share."),
    other("sasl.login.retry.backoff.ms", Kind.LONG, "100", "Pause before the identity provider is asked again."),
    other("sasl.login.retry.backoff.max.ms", Kind.LONG, "10000", "Longest such pause."),
    other(
        "sasl.oauthbearer.assertion.algorithm",
        Kind.STRING,
        "RS256",
        "Algorithm that signs an assertion.",
        OneOf(("ES256", "RS256"), any_case=True),
    ),
    other("sasl.oauthbearer.assertion.claim.aud", Kind.STRING, None, "Audience claimed in an assertion."),
    other(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        Kind.INT,
        "300",
        "How long an assertion is valid.",
        Range(0, 86400),
    ),
    other("sasl.oauthbearer.assertion.claim.iss", Kind.STRING, None, "Issuer claimed in an assertion."),
    other("sasl.oauthbearer.assertion.claim.jti.include", Kind.BOOLEAN, "false", "Give assertions an id."),
    other(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        Kind.INT,
        "60",
        "How far back an assertion's validity begins.",
        Range(0, 3600),
    ),
    other("sasl.oauthbearer.assertion.claim.sub", Kind.STRING, None, "Subject claimed in an assertion."),
    other("sasl.oauthbearer.assertion.file", Kind.STRING, None, "File with a ready assertion."),
    other("sasl.oauthbearer.assertion.private.key.file", Kind.STRING, None, "File with the key that signs assertions."),
    other("sasl.oauthbearer.assertion.private.key.passphrase", Kind.PASSWORD, None, "Passphrase of that key."),
    other(
        "sasl.oauthbearer.assertion.template.file",
        Kind.STRING,
        None,
        "File with the parts of an assertion that stay the same.",
    ),
    other(
        "sasl.oauthbearer.jwt.retriever.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Java class that gets tokens.",
    ),
    other(
        "sasl.oauthbearer.jwt.validator.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Java class that checks tokens.",
    ),
    other("sasl.server.callback.handler.class", Kind.CLASS, None, "Java class that answers a SASL server's questions."),
    other("security.providers", Kind.STRING, None, "Java classes that provide security algorithms."),
)

_SECURITY_TLS: Final = (
    other("ssl.allow.dn.changes", Kind.BOOLEAN, "false", "Let a renewed certificate have another distinguished name."),
    other("ssl.allow.san.changes", Kind.BOOLEAN, "false", "Let a renewed certificate lose alternative names."),
    other("ssl.engine.factory.class", Kind.CLASS, None, "Java class that makes TLS engines."),
    other("ssl.keymanager.algorithm", Kind.STRING, "SunX509", "Algorithm of the key manager."),
    other("ssl.protocol", Kind.STRING, "TLSv1.3", "Version of TLS that is preferred."),
    other("ssl.provider", Kind.STRING, None, "Java provider of TLS."),
    other("ssl.secure.random.implementation", Kind.STRING, None, "Source of random numbers."),
    other("ssl.trustmanager.algorithm", Kind.STRING, "PKIX", "Algorithm of the trust manager."),
)

SECURITY: Final = (*_SECURITY_DELEGATION_TOKENS, *_SECURITY_SASL, *_SECURITY_TLS)
