"""What can go wrong between a client and a broker. PURE."""

from ottla.errors import ErrorCode, OttlaError


class ClientError(OttlaError):
    """A request got no answer; the text names the broker and the reason."""

    code = ErrorCode.NETWORK_EXCEPTION


class BrokerUnavailable(ClientError):
    """A broker cannot be reached, does not answer in time, or hangs up. It may have carried the request out."""


class BrokerRefused(BrokerUnavailable):
    """There is a machine at the broker's address, and nobody listens on it."""


class BrokerSilent(BrokerUnavailable):
    """A broker took a request and did not answer in time."""


class NotABroker(BrokerUnavailable):
    """The other end sends bytes that are no answer of a Kafka broker."""


class UnsupportedRequest(ClientError):
    """The broker serves no version of a request that is known here, or none that can carry its fields."""

    code = ErrorCode.UNSUPPORTED_VERSION


class AuthenticationFailed(ClientError):
    """The broker refuses the credentials or the mechanism, or cannot prove its identity."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class TlsFailed(AuthenticationFailed, BrokerUnavailable):
    """One end does not trust the certificate of the other, or both have no version or cipher of TLS in common."""
