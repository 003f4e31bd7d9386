"""The delegation tokens in the log of a quorum, for logins at a broker: read, and followed. Controllers change them."""

from collections.abc import Iterable
from typing import NoReturn

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.metadata.delegation_tokens import DelegationTokens
from ottla.metadata.quorum_metadata import DecidedElsewhere, QuorumMetadata
from ottla.metadata.view import MetadataView
from ottla.protocol.metadata_records import DelegationTokenRecord
from ottla.security.delegation_tokens import DelegationToken

FIRST_VERSION = 0


class QuorumTokens(DelegationTokens):
    """The tokens in the log. On the loop's thread."""

    def __init__(self, metadata: MetadataView, config: BrokerConfig, clock: Clock) -> None:  # no store
        self._begin(config, clock)
        assert isinstance(metadata, QuorumMetadata)
        self._metadata = metadata

    async def open(self) -> None:
        """Take all tokens, and follow their changes."""
        self._metadata.follow_tokens(self._take_changes)

    async def close(self) -> None:
        """There is nothing to stop: changes come with the log."""

    async def put(self, token: DelegationToken) -> None:
        self._refuse()

    async def remove(self, token_id: str) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DecidedElsewhere("this broker changes no delegation tokens: the active controller of the quorum does")

    def _take_changes(self, changed: Iterable[str]) -> None:
        for token_id in changed:
            record = self._metadata.state.tokens.get(token_id)
            if record is None:
                self.forget(token_id)
                continue
            self.know(token_of(record), FIRST_VERSION)


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """The token in a record."""
    return DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )
