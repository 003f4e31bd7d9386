"""The delegation tokens in the log of a quorum, on a controller: the active one changes and removes them."""

import asyncio
import logging
from typing import NoReturn

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError
from ottla.metadata.delegation_tokens import DelegationTokens
from ottla.metadata.quorum_decisions import QuorumDecisions
from ottla.metadata.quorum_replay import Advance, QuorumReplay
from ottla.metadata.quorum_tokens import FIRST_VERSION, token_of
from ottla.protocol.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.protocol.schema import Message
from ottla.security.delegation_tokens import DelegationToken
from ottla.tasks import Tasks

log = logging.getLogger(__name__)


class DecidedTokens(DelegationTokens):
    """The tokens in the log. On the loop's thread."""

    def __init__(self, decisions: QuorumDecisions, replay: QuorumReplay, config: BrokerConfig, clock: Clock) -> None:
        self._begin(config, clock)
        self._decisions = decisions
        self._replay = replay
        self._expiring = Tasks()

    async def open(self) -> None:
        """Take all tokens, and follow their changes; remove ended ones while this node decides."""
        self._replay.on_advance(self._follow_log)
        self._expiring.spawn(self._expire(), "removal of ended delegation tokens")

    async def close(self) -> None:
        """Remove none any longer."""
        await self._expiring.close()

    async def put(self, token: DelegationToken) -> None:
        """Store a token, new or changed, durably. Raises `NotController`, `NotQuorumLeader`."""
        record = DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issued_ms,
            max_timestamp=token.max_ms,
            expiration_timestamp=token.expires_ms,
            token_id=token.token_id,
        )
        await self._append(record)

    async def remove(self, token_id: str) -> None:
        """Remove a token. Raises as `put`."""
        await self._append(RemoveDelegationTokenRecord(token_id=token_id))

    async def take(self, news: object) -> NoReturn:
        """There are no notifications."""
        raise RuntimeError("tokens of a quorum come with its log")

    async def _append(self, record: Message) -> None:
        async with self._decisions.changing:
            self._decisions.check_active()
            await self._decisions.commit_records([record])

    def _follow_log(self, advance: Advance) -> None:
        for token_id in advance.tokens:
            record = advance.state.tokens.get(token_id)
            if record is None:
                self.forget(token_id)
            else:
                self.know(token_of(record), FIRST_VERSION)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_s)
            for token in self.all() if self._decisions.is_active else ():
                if token.is_over(self.now_ms()):
                    try:
                        await self.remove(token.token_id)
                    except OttlaError as failed:
                        log.info("an ended delegation token is removed later: %s", failed)
