"""The exchange before a client's first request: ApiVersions, then SASL where the broker asks for it. PURE.

ApiVersions 3 --> served versions, or UNSUPPORTED_VERSION: again in a version that the broker knows (KIP-511)
SaslHandshake 1 (mechanism) --> SaslAuthenticate (token) --> ... until the mechanism is satisfied (KIP-43, 152)
"""

from collections.abc import Callable, Generator
from typing import Any, Final

from ottla import __version__
from ottla.client.errors import AuthenticationFailed, NotABroker
from ottla.client.sansio.sasl import Mechanism
from ottla.client.sansio.session import API_VERSIONS_FALLBACK, Handshake, Served
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Message

API_VERSIONS_VERSION: Final = 4
"""Has the features of the cluster, also those whose range starts at 0."""
SOFTWARE: Final = "ottla"
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2

Step = Generator[tuple[Message, int], Any, Served]


def _ignore(lifetime_ms: int) -> None:
    """A login that is not renewed."""


def handshake(mechanism: Mechanism | None = None, succeeded: Callable[[int], None] = _ignore) -> Handshake:
    """Ask for versions, and authenticate if there is a mechanism.

    `succeeded` gets the life of the login in ms, 0 for one that does not end. The texts of errors follow the broker's
    name. Raises `NotABroker`, `AuthenticationFailed`.
    """
    served = yield from _versions()
    if mechanism is not None:
        yield from _authenticate(mechanism, served, succeeded)
    return served


def renewal(mechanism: Mechanism, served: Served, succeeded: Callable[[int], None]) -> Handshake:
    """Authenticate again on a connection that is in use (KIP-368). As `handshake`."""
    yield from _authenticate(mechanism, served, succeeded)
    return served


def _versions() -> Step:
    version = API_VERSIONS_VERSION
    while True:
        answer = yield api_versions_request(), version
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        if not answer.error_code:
            return served
        if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == API_VERSIONS_FALLBACK:
            raise NotABroker(f"does not say what it serves: error {answer.error_code}")
        _, highest = served.get(ApiKey.API_VERSIONS, (0, API_VERSIONS_FALLBACK))
        version = max(API_VERSIONS_FALLBACK, min(highest, version - 1))


def api_versions_request() -> ApiVersionsRequest:
    """The request, with the name and version of this software (KIP-511)."""
    return ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=__version__)


def _authenticate(
    mechanism: Mechanism, served: Served, succeeded: Callable[[int], None]
) -> Generator[tuple[Message, int], Any, None]:
    answer = yield SaslHandshakeRequest(mechanism=mechanism.name), _HANDSHAKE_VERSION
    if answer.error_code:
        enabled = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(f"does not accept SASL mechanism {mechanism.name}; it accepts {enabled}")
    version = min(served.get(ApiKey.SASL_AUTHENTICATE, (0, 0))[1], _AUTHENTICATE_VERSION)
    token = mechanism.respond(None)
    while token is not None:
        answer = yield SaslAuthenticateRequest(auth_bytes=token), version
        if answer.error_code:
            reason = answer.error_message or "it refused the user name or password"
            raise AuthenticationFailed(f"does not authenticate this client: {reason}")
        token = mechanism.respond(bytes(answer.auth_bytes))
    succeeded(answer.session_lifetime_ms)
