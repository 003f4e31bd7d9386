"""Requests that only brokers send each other: recognized, and served for brokers only.

A sender counts as a broker if it comes over the listener between brokers (or the control plane's), from an address
under which that broker is registered, and names the epochs that the metadata store has: its own, this broker's, the
controller's. Without TLS there is no better proof; where clients share listener and address with brokers, the epochs
are all there is. SECURITY.md explains this.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.registered_brokers import Claim
from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.registered_brokers import RegisteredBrokers
    from ottla.server.context import RequestContext

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0
"""How long the store may take to show an epoch that a request names already."""
POLL_INTERVAL_S: Final = 0.1
COMPLAIN_AGAIN_S: Final = 60.0
COMPLAINTS_KEPT: Final = 256


class Verdict(Enum):
    """The treatment of a request that claims to come from a broker."""

    BROKER = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """The store cannot be asked: the connection is closed, so that a broker sends it again."""


def _from_controller(request: Any) -> Claim:
    return Claim(BrokerId(request.controller_id), None, request.controller_epoch, request.broker_epoch)


def _from_broker(request: Any) -> Claim:
    return Claim(BrokerId(request.broker_id), request.broker_epoch)


def _from_follower(request: Any) -> Claim | None:
    state = request.replica_state
    replica, epoch = (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
    return None if replica < 0 else Claim(BrokerId(replica), epoch)


def _from_any_broker(request: Any) -> Claim:
    return Claim()


CLAIMS: Final[dict[ApiKey, Callable[[Any], Claim | None]]] = {
    ApiKey.LEADER_AND_ISR: _from_controller,
    ApiKey.STOP_REPLICA: _from_controller,
    ApiKey.UPDATE_METADATA: _from_controller,
    ApiKey.CONTROLLED_SHUTDOWN: _from_broker,
    ApiKey.ALTER_PARTITION: _from_broker,
    ApiKey.ALLOCATE_PRODUCER_IDS: _from_broker,
    ApiKey.FETCH: _from_follower,
    ApiKey.WRITE_TXN_MARKERS: _from_any_broker,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _from_any_broker,
    ApiKey.READ_SHARE_GROUP_STATE: _from_any_broker,
    ApiKey.WRITE_SHARE_GROUP_STATE: _from_any_broker,
    ApiKey.DELETE_SHARE_GROUP_STATE: _from_any_broker,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _from_any_broker,
}
"""The claims in a request's contents; None for a request that any client may send, such as a consumer's fetch."""

ANSWERS_OTHERS: Final = frozenset(key for key, claim in CLAIMS.items() if claim is _from_any_broker)
"""Handlers that get the requests of others, too, and answer each partition (`RequestContext.from_broker`)."""


class InterBrokerGate:
    """Judges claims. Without `brokers`, on a broker that is alone, none is believed, unless insecurity is wanted."""

    def __init__(
        self, config: "BrokerConfig", brokers: "RegisteredBrokers | None", loop: "asyncio.AbstractEventLoop"
    ) -> None:
        self._loop = loop
        self._brokers = brokers
        self._believes_everyone = brokers is None and config.allow_insecure
        self._listeners = {config.inter_broker_listener, config.control_plane_listener}
        self._complaints: OrderedDict[tuple[str, ApiKey], float] = OrderedDict()

    def admits(self, claim: Claim, context: "RequestContext") -> bool:
        """Whether what is known already proves the claim."""
        if self._brokers is None:
            return self._believes_everyone
        return context.listener in self._listeners and self._brokers.backs(claim, context.client_host)

    async def judge(self, claim: Claim, context: "RequestContext") -> Verdict:
        """Ask the store about a claim that what is known does not prove; complain if it is not true."""
        verdict = await self._judge(claim, context)
        if verdict is not Verdict.BROKER:
            self._complain(context)
        return verdict

    def refusal(self, claim: Claim, context: "RequestContext") -> ApiError:
        """What a refused request is answered with: a broker or controller of the past learns that it is one."""
        if self._brokers is not None and context.listener in self._listeners:
            code = self._brokers.stale(claim)
            if code is not None:
                return ApiError(code, "an epoch in this request is over, or was never begun")
        return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only registered brokers may send this")

    async def _judge(self, claim: Claim, context: "RequestContext") -> Verdict:
        brokers = self._brokers
        if brokers is None or context.listener not in self._listeners:
            return Verdict.REFUSED
        deadline = self._loop.time() + TIMEOUT_S
        while True:
            was_read = await brokers.read()
            if self.admits(claim, context):
                return Verdict.BROKER
            if was_read and not brokers.may_be_backed_soon(claim, context.client_host):
                return Verdict.REFUSED
            if self._loop.time() >= deadline:
                return Verdict.REFUSED if was_read else Verdict.UNKNOWN
            await asyncio.sleep(POLL_INTERVAL_S)

    def _complain(self, context: "RequestContext") -> None:
        """Once per peer and API in a while."""
        now, key = self._loop.time(), (context.client_host, context.api_key)
        if now - self._complaints.get(key, -COMPLAIN_AGAIN_S) < COMPLAIN_AGAIN_S:
            return
        self._complaints[key] = now
        self._complaints.move_to_end(key)
        if len(self._complaints) > COMPLAINTS_KEPT:
            self._complaints.popitem(last=False)
        log.warning(
            "%s from %s at listener %s is %s: it does not come from a registered broker, over the listener between "
            "brokers, from an address the broker is registered with (see inter.broker.peer.addresses), with the epochs "
            "that the metadata store has. More of these are not logged for a minute",
            context.api_key.name,
            context.client_host,
            context.listener,
            "good for hanging transactions only" if context.api_key is ApiKey.WRITE_TXN_MARKERS else "refused",
        )
