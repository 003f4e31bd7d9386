"""The operator's authorizer (`ottla.authorizers`): asked in a thread of its own, for a limited time, in doubt refused.

guard --> super users? --> rules --> answers of the last second --> thread: authorize(action) --> True?
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Final

from ottla.authorizers import ANSWERED_WITHIN_S, KEPT_S, Action, Authorizer
from ottla.config.authorizer import AUTHORIZER, AUTHORIZER_GROUP, AuthorizerSettings
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig
from ottla.metadata.plug_ins import made
from ottla.security.acls import LONGEST_KEPT, MOST_DECISIONS, AccessRule, ResourcePattern, StandardAuthorizer
from ottla.security.authorization import Operation, ResourceType

log = logging.getLogger(__name__)

CONFIGURED_WITHIN_S: Final = 5.0
REPORT_EVERY_S: Final = 10.0
"""Failures of an authorizer are reported so often at most: each client's request can be one."""

_Call = Callable[[], object]


class AuthorizerThread:
    """One authorizer and its thread, a daemon: one that never returns does not keep the broker from stopping."""

    def __init__(self, name: str, authorizer: Authorizer, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        self._described = f"the authorizer {name} ({AUTHORIZER})"
        self._authorizer = authorizer
        self._now = now
        self._calls: SimpleQueue[_Asked | None] = SimpleQueue()
        self._hangs = False
        """Has it been given up to wait for the call under way?"""
        self._reported_at = -REPORT_EVERY_S
        threading.Thread(target=self._run, name=f"ottla-authorizer-{name}", daemon=True).start()

    def configure(self, settings: Mapping[str, str]) -> None:
        """Hand over the broker's settings; from any thread but the loop's. Raises `InvalidConfig`."""
        asked = self._ask(lambda: self._authorizer.configure(settings), CONFIGURED_WITHIN_S)
        if not asked.done.is_set():
            raise InvalidConfig(
                f"{AUTHORIZER}: {self._described} has not returned from configure within {CONFIGURED_WITHIN_S:g} s"
            )
        if asked.raised is not None:
            raise InvalidConfig(f"{AUTHORIZER}: {self._described} does not take the settings: {asked.raised!r}")

    def allows(self, action: Action) -> bool | None:
        """What it decides; None if it does not, which refuses. From any thread."""
        if self._hangs:
            return None
        asked = self._ask(lambda: self._authorizer.authorize(action), ANSWERED_WITHIN_S)
        if not asked.done.is_set():
            self._hangs = True
            self._report(f"has not answered within {ANSWERED_WITHIN_S:g} s; until it does, everything is refused")
            return None
        if asked.raised is not None:
            self._report("failed", asked.raised)
            return None
        if not isinstance(asked.result, bool):
            self._report(f"has answered {asked.result!r}, neither True nor False")
            return None
        return asked.result

    def close(self) -> None:
        """Have it close, for some seconds at most; from any thread but the loop's."""
        asked = self._ask(self._authorizer.close, CONFIGURED_WITHIN_S)
        if not asked.done.is_set() or asked.raised is not None:
            log.error("%s has not closed", self._described, exc_info=asked.raised)
        self._calls.put(None)

    def _ask(self, call: _Call, timeout_s: float) -> "_Asked":
        asked = _Asked(call)
        self._calls.put(asked)
        if not asked.done.wait(timeout_s):
            asked.is_given_up = True
        return asked

    def _report(self, problem: str, raised: BaseException | None = None) -> None:
        if self._now() - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = self._now()
            log.error("a decision is refused: %s %s", self._described, problem, exc_info=raised)

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            if not asked.is_given_up:
                try:
                    asked.result = asked.call()
                except BaseException as error:  # SystemExit, too: nothing of an authorizer's ends the thread
                    asked.raised = error
                asked.done.set()
            self._hangs = False


class _Asked:
    __slots__ = ("call", "done", "is_given_up", "raised", "result")

    def __init__(self, call: _Call) -> None:
        self.call = call
        self.done = threading.Event()
        self.is_given_up = False
        self.result: object = None
        self.raised: BaseException | None = None


class OwnAuthorizer(StandardAuthorizer):
    """Ottla's rules, and an authorizer that is asked after them. Any thread may ask for a decision."""

    answers_slowly = True

    def __init__(self, settings: AuthorizerSettings, thread: AuthorizerThread, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        super().__init__(settings.super_users, allow_if_none=settings.allow_if_none)
        self._thread = thread
        self._now = now
        self._answers: dict[tuple[object, ...], bool] = {}
        self._answers_end = 0.0

    def set_rules(self, resource: ResourcePattern, rules: Iterable[AccessRule]) -> None:
        """As `StandardAuthorizer.set_rules`; answers that were given before count no longer."""
        super().set_rules(resource, rules)
        self._answers = {}

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the authorizer allows it; super users may do everything."""
        by_rules = self.allows_by_rules(principal, host, operation, kind, name)
        return self._decide(principal, host, operation, kind, name, by_rules)

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """As `allows`, with any resource of a type."""
        by_rules = super().allows_any(principal, host, operation, kind)
        return self._decide(principal, host, operation, kind, None, by_rules)

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str | None, by_rules: bool
    ) -> bool:
        if self.is_super_user(principal):
            return True
        now = self._now()
        if now >= self._answers_end:
            self._answers, self._answers_end = {}, now + KEPT_S
        answers = self._answers  # replaced when rules change: what is answered about old ones is not kept
        asked = (principal, host, operation, kind, name)
        known = answers.get(asked)
        if known is None:
            known = self._thread.allows(Action(principal, host, operation.name, kind.name, name, by_rules))
            if known is None:
                return False
            if len(answers) < MOST_DECISIONS and len(name or "") <= LONGEST_KEPT:
                answers[asked] = known
        return known


async def open_authorizer_thread(config: BrokerConfig, name: str, now: Callable[[], float]) -> AuthorizerThread:
    """The authorizer of an entry point, for all roles of this process; `now`: seconds of a monotonic clock.

    Raises `InvalidConfig` if it is not installed or does not start.
    """
    authorizer = made(AUTHORIZER, name, AUTHORIZER_GROUP, "authorizer", ("configure", "authorize", "close"))
    thread = AuthorizerThread(name, authorizer, now)
    await asyncio.get_running_loop().run_in_executor(None, thread.configure, dict(config.given))
    return thread
