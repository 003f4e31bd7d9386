"""What a failure of TLS means and what helps, in words. PURE."""

import ssl
from typing import Final

from ottla.errors import sentence

_UNTRUSTED: Final = {
    10: "it has expired: the broker needs a new one",
    18: "it has signed itself: name it, or its authority, in ssl.ca.location",
    19: "name its authority in ssl.ca.location or ssl.truststore.location",
    20: "name its authority in ssl.ca.location or ssl.truststore.location",
    21: "name its authority in ssl.ca.location or ssl.truststore.location",
    62: "it is for another host: connect by a name that it has",
    64: "it is for another address: connect by a name that it has",
}
"""By OpenSSL's X509_V_ERR_*."""
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "it asks for a certificate of this client: set ssl.certificate.location, ssl.key.location",
    "UNKNOWN_CA": "it does not trust the certificate of this client: is ssl.certificate.location the right one?",
    "BAD_CERTIFICATE": "it refuses the certificate of this client, or got none: see ssl.certificate.location",
    "CERTIFICATE_UNKNOWN": "it refuses the certificate of this client: see ssl.certificate.location",
    "CERTIFICATE_REVOKED": "the certificate of this client was revoked: ask for a new one",
    "CERTIFICATE_EXPIRED": "the certificate of this client has expired: ask for a new one",
    "PROTOCOL_VERSION": "both ends have no version of TLS in common",
    "HANDSHAKE_FAILURE": "both ends have no cipher in common, or it asks for a certificate of this client",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: is this the port of a listener with SSL?",
    "RECORD_LAYER_FAILURE": "it does not speak TLS: is this the port of a listener with SSL?",
}
"""By the end of OpenSSL's reasons."""


def explained(error: OSError) -> str:
    """Why a handshake failed, or a connection ended with an alert, and the remedy where one is known."""
    code = getattr(error, "verify_code", None)
    if code:
        message = str(getattr(error, "verify_message", "")).rstrip(".")
        remedy = _UNTRUSTED.get(code)
        return f"its certificate is not trusted: {message}" + (f"; {remedy}" if remedy else "")
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) and isinstance(reason, str):
        for ending, meaning in _ALERTS.items():
            if reason.endswith(ending):
                return meaning
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        return "it hung up: is this the port of a listener with SSL?"
    return (error.strerror or sentence(error)).lower()
