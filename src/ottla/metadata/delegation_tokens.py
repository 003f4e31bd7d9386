"""The delegation tokens of a cluster: read from the metadata store, changed there, and followed as others change them.

Every broker writes tokens itself, as Kafka 3.9 does with ZooKeeper. Ended ones are removed by whichever broker sees
them first.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ottla.clock import Clock
from ottla.cluster.scram_credentials import ScramCredential
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.metadata.notifications import Notifications
from ottla.metadata.store import token_layout
from ottla.metadata.store.base import (
    Create,
    Delete,
    MetadataStore,
    Node,
    Operation,
    SessionEvent,
    StoreConflict,
    StoreUnavailable,
    Update,
)
from ottla.metadata.store.layout import MalformedNode
from ottla.security.delegation_tokens import DelegationToken, Lifetimes, password_of, secret_of
from ottla.security.sasl import FEWEST_ITERATIONS, SCRAM_HASHES, credential, salted
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
_SALT_BYTES: Final = 16


class DelegationTokens(Notifications):
    """The tokens in the store. On the loop's thread."""

    def __init__(self, store: MetadataStore, config: BrokerConfig, clock: Clock, *, shared: bool) -> None:
        """`shared`: other brokers use the store, too. The settings have `delegation.token.secret.key`."""
        super().__init__(store, (token_layout.CHANGES_PATH,), "delegation tokens")
        self._shared = shared
        self._begin(config, clock)

    def _begin(self, config: BrokerConfig, clock: Clock) -> None:
        """Know no token yet."""
        self._key = config.delegation_token_secret_key or ""
        self.lifetimes = Lifetimes(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)
        self._check_interval_s = config.delegation_token_expiry_check_interval_ms / 1000
        self._clock = clock
        self._tokens: dict[str, tuple[DelegationToken, int]] = {}
        """With the version of the node, by id."""
        self._by_secret: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._changing = asyncio.Lock()
        self._tasks = Tasks()

    async def open(self) -> None:
        """Read all tokens, and follow their changes. Raises `StoreUnavailable`."""
        known = await self._store.read(token_layout.CHANGES_PATH)
        await self._read_all()
        if self._shared:
            self._store.on_session(self._session_changed)
            self.start(known)
        self._tasks.spawn(self._remove_ended(), "removal of ended delegation tokens")

    async def close(self) -> None:
        """Stop following changes."""
        await self._tasks.close()
        await super().close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time by which tokens end."""
        return self._clock.now_ms()

    def all(self) -> list[DelegationToken]:
        """Every token, ended ones that are still there included, as in Kafka."""
        return [token for token, _ in self._tokens.values()]

    def secret(self, token: DelegationToken) -> bytes:
        """The secret of a token."""
        return secret_of(token.token_id, self._key)

    def find(self, secret: bytes) -> DelegationToken:
        """The token with a secret. Raises `ApiError` DELEGATION_TOKEN_NOT_FOUND."""
        found = self._tokens.get(self._by_secret.get(secret, ""))
        if found is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found on server.")
        return found[0]

    def usable(self, token_id: str) -> DelegationToken | None:
        """The token with an id, unless it has ended."""
        found = self._tokens.get(token_id)
        return None if found is None or found[0].is_over(self.now_ms()) else found[0]

    def credential(self, token_id: str, mechanism: str) -> ScramCredential | None:
        """What a login with a token is checked against, once it is prepared."""
        return self._credentials.get((token_id, mechanism)) if self.usable(token_id) is not None else None

    def is_prepared(self, token_id: str, mechanism: str) -> bool:
        """Whether `credential` has its answer."""
        return self.usable(token_id) is None or (token_id, mechanism) in self._credentials

    async def prepare(self, token_id: str, mechanism: str) -> None:
        """Hash the secret of a token, in a thread."""
        salt = secret_of(f"salt of {token_id}", self._key)[:_SALT_BYTES]
        password = password_of(token_id, self._key)
        loop = asyncio.get_running_loop()
        hashed = await loop.run_in_executor(None, salted, mechanism, password, salt, FEWEST_ITERATIONS)
        if token_id in self._tokens:
            made = credential(mechanism, hashed, salt, FEWEST_ITERATIONS)
            self._credentials[token_id, mechanism] = made

    async def take(self, news: Sequence[Node]) -> None:
        """Read the tokens that other brokers have changed."""
        async with self._changing:
            for token_id in dict.fromkeys(node.data.decode(errors="replace") for node in news):
                await self._read(token_id)

    async def _read(self, token_id: str) -> None:
        path = token_layout.token_path(token_id)
        self._take(token_id, path, (await self._store.read(path)).get(path))

    async def _read_all(self) -> None:
        found = await self._store.read(token_layout.TOKENS_PATH)
        by_id = {path.rpartition("/")[2]: path for path in found if path != token_layout.TOKENS_PATH}
        for token_id in list(self._tokens):
            if token_id not in by_id:
                self._take(token_id, "", None)
        for token_id, path in by_id.items():
            self._take(token_id, path, found[path])

    def _take(self, token_id: str, path: str, node: Node | None) -> None:
        token = None
        if node is not None:
            try:
                token = token_layout.read_token(path, node)
            except MalformedNode as malformed:
                log.error("%s; nobody can log in with this token", malformed)
        if token is None or node is None or token.token_id != token_id:
            self.forget(token_id)
        else:
            self.know(token, node.version)

    def know(self, token: DelegationToken, version: int) -> None:
        """There is a token, new or changed."""
        self._tokens[token.token_id] = token, version
        self._by_secret[self.secret(token)] = token.token_id

    def forget(self, token_id: str) -> None:
        """There is no such token any more."""
        self._tokens.pop(token_id, None)
        self._by_secret.pop(secret_of(token_id, self._key), None)
        for mechanism in SCRAM_HASHES:
            self._credentials.pop((token_id, mechanism), None)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.LOST:
            self._tasks.spawn(self._read_again(), "delegation tokens after another session with the store")

    async def _read_again(self) -> None:
        while True:
            try:
                async with self._changing:
                    await self._read_all()
            except StoreUnavailable as failed:
                log.warning("delegation tokens cannot be read now, retrying; those known hold: %s", failed)
                await asyncio.sleep(RETRY_S)
            else:
                return

    # -- changing ----------------------------------------------------------------------------------------------------

    async def put(self, token: DelegationToken) -> None:
        """Store a token, new or changed, durably. Raises `StoreConflict`, `StoreUnavailable`."""
        async with self._changing:
            known = self._tokens.get(token.token_id)
            path, data = token_layout.token_path(token.token_id), token_layout.token_node(token)
            await self._commit(token.token_id, Create(path, data) if known is None else Update(path, data, known[1]))

    async def remove(self, token_id: str) -> None:
        """Remove a token. Raises as `put`."""
        async with self._changing:
            known = self._tokens.get(token_id)
            if known is not None:
                await self._commit(token_id, Delete(token_layout.token_path(token_id), known[1]))

    async def _commit(self, token_id: str, operation: Operation) -> None:
        operations = [operation]
        if self._shared:
            operations.append(token_layout.change_notification(token_id))
        try:
            await self._store.commit(operations)
        except (StoreConflict, StoreUnavailable):
            self._tasks.spawn(self._read_again(), "delegation tokens after a commit that failed")
            raise
        await self._read(token_id)

    async def _remove_ended(self) -> None:
        while True:
            for token in self.all():
                if token.is_over(self.now_ms()):
                    try:
                        await self.remove(token.token_id)
                    except (StoreConflict, StoreUnavailable) as failed:
                        log.info("an ended delegation token is removed later: %s", failed)
            await asyncio.sleep(self._check_interval_s)
