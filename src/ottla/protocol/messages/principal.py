"""How a principal travels inside an Envelope request (KIP-590); behind a version, see `ottla.protocol.versioned`."""

from __future__ import annotations

from ottla.protocol.schema import Message, message


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData(Message):
    type: str
    name: str
    token_authenticated: bool
