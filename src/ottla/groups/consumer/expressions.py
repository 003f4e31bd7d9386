"""Regular expressions in the subscriptions of a consumer group (KIP-848), and the topics they stand for. PURE.

The machine does not look topics up. A heartbeat's reply names the expressions to be resolved; the coordinator
resolves them without blocking the loop, and sends the result as an event.
"""

from typing import Final

from ottla.coordination.state_machine import Effect, Reply
from ottla.errors import ApiError, ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import RegexesResolved
from ottla.groups.consumer.group import NEVER_RESOLVED, ConsumerGroup, Resolution
from ottla.groups.consumer.members import ConsumerMember
from ottla.groups.consumer.rebalance import Decision, Rebalancing
from ottla.groups.consumer.records import ResolvedRegex, ResolvedRegexDeleted
from ottla.groups.environment import GroupEnvironment
from ottla.groups.kinds import Groups

RESOLVE_AGAIN_AFTER_MS: Final = 1_000
"""So often at most are the topics of a group's expressions looked up, while topics come and go; Kafka: 10 s."""

ASK_AGAIN_AFTER_MS: Final = 10_000
"""Interval of retries while a resolution stays unanswered."""


class Expressions:
    """What heartbeats do about the expressions of their group."""

    def __init__(
        self, groups: Groups, config: GroupConfig, environment: GroupEnvironment, rebalancing: Rebalancing
    ) -> None:
        self._groups = groups
        self._config = config
        self._environment = environment
        self._rebalancing = rebalancing

    def follow(self, decision: Decision, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Remove an expression that is no longer used; True: the topics of the new one are known already.

        Raises `ApiError` INVALID_REGULAR_EXPRESSION.
        """
        old, new = before.topic_regex, member.topic_regex
        if old == new:
            return False
        group = decision.group
        if old and group.regexes[old] == 1:
            decision.records.append(ResolvedRegexDeleted(group.group_id, old))
        if not new:
            return True
        if group.regexes[new]:
            return new in group.resolutions
        problem = self._environment.regex_problem(new)
        if problem is not None:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{new}` is not a valid regular expression: {problem}.",
            )
        return False

    def to_resolve(
        self, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, now_ms: int
    ) -> tuple[str, ...]:
        """All expressions of the group, if their topics have to be looked up now."""
        if not group.regexes and not member.topic_regex:
            return ()
        if group.resolve_asked_ms is not None and _is_recent(group.resolve_asked_ms, ASK_AGAIN_AFTER_MS, now_ms):
            return ()
        used = group.regexes.copy()
        if before.topic_regex:
            used[before.topic_regex] -= 1
        if member.topic_regex:
            used[member.topic_regex] += 1
        regexes = tuple(sorted(+used))
        if all(regex in group.resolutions for regex in regexes):
            last = next(iter(group.resolutions.values()), NEVER_RESOLVED)
            is_old = last.version != self._environment.topics().version
            max_age_ms = RESOLVE_AGAIN_AFTER_MS if is_old else self._config.group_consumer_regex_refresh_interval_ms
            if not regexes or _is_recent(last.timestamp_ms, max_age_ms, now_ms):
                return ()
        group.resolve_asked_ms = now_ms
        return regexes

    def resolved(self, event: RegexesResolved, now_ms: int) -> list[Effect]:
        """Take up the topics that match a group's regular expressions; a new epoch where they changed."""
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup):
            return [Reply(event, None)]
        decision = Decision(group)
        reasons: list[str] = []
        resolutions = dict(group.resolutions)
        for regex, topics in event.topics.items():
            if not group.regexes[regex]:
                continue
            if topics != group.resolutions.get(regex, NEVER_RESOLVED).topics:
                reasons.append(f"{regex} stands for other topics")
            resolutions[regex] = Resolution(topics, event.version, now_ms)
            decision.records.append(ResolvedRegex(group.group_id, regex, *resolutions[regex]))
        self._rebalancing.advance(decision, group.members, reasons, now_ms, resolutions)
        decision.effects.append(Reply(event, None))
        return decision.carried_out()


def _is_recent(at_ms: int, max_age_ms: int, now_ms: int) -> bool:
    """Whether a time is recent. A time in the future is not: the clock was set back."""
    return at_ms <= now_ms < at_ms + max_age_ms
