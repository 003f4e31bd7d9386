"""Members that go, and static members that come back under another id; what is left may be a classic group. PURE."""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from ottla.coordination.state_machine import SetTimer
from ottla.groups.classic.protocol import SESSION as CLASSIC_SESSION
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.members import ConsumerMember
from ottla.groups.consumer.migration import downgraded, may_downgrade
from ottla.groups.consumer.rebalance import Decision, Rebalancing
from ottla.groups.consumer.records import TargetAssignment
from ottla.groups.environment import GroupEnvironment
from ottla.groups.history import Histories
from ottla.ids import MemberId

log = logging.getLogger(__name__)

DOWNGRADED: Final = "downgraded"
"""A timer that fires at once: the group is a classic one by then, and is to rebalance."""


class Leaving:
    """What requests of both protocols need when a member's place becomes free."""

    def __init__(
        self, config: GroupConfig, environment: GroupEnvironment, rebalancing: Rebalancing, histories: Histories
    ) -> None:
        self._config = config
        self._environment = environment
        self._rebalancing = rebalancing
        self._histories = histories

    def remove(self, decision: Decision, members: Sequence[ConsumerMember], reason: str, now_ms: int) -> None:
        """Take these members out of the group; no members: nothing happens."""
        if not members:
            return
        group = decision.group
        gone = {member.member_id for member in members}
        staying = [member for member in group.members.values() if member.member_id not in gone]
        if staying and may_downgrade(group, staying, self._environment.topics(), self._config):
            self.downgrade(decision, staying, now_ms, reason)
        else:
            self._rebalancing.remove(decision, members, reason, now_ms)

    def replace(self, decision: Decision, current: ConsumerMember, member_id: MemberId) -> ConsumerMember:
        """The same static member under another id. It has what it had, and begins at epoch 0."""
        group = decision.group
        member = current._replace(member_id=member_id, epoch=0, previous_epoch=0)
        log.info("group %s: instance %s is back as %s", group.group_id, current.instance_id, member_id)
        self._rebalancing.remove_records(decision, current.member_id)
        target = group.target_of(current.member_id, current.instance_id)
        decision.records.append(member.subscription_record(group.group_id))
        decision.records.append(TargetAssignment(group.group_id, member_id, target))
        decision.records.append(member.current_record(group.group_id))
        decision.effects += self._rebalancing.cancel_timers(group.group_id, current.member_id)
        return member

    def downgrade(
        self, decision: Decision, staying: Collection[ConsumerMember], now_ms: int, reason: str | None = None
    ) -> None:
        """Make it a classic group of its members of the classic protocol, one of which may be new.

        With a `reason` it rebalances, as soon as the records are in force and it is a classic one.
        """
        group = decision.group
        record = downgraded(group, staying, self._environment.topics(), now_ms, rebalances=reason is not None)
        everybody = dict.fromkeys((*group.members, *(member.member_id for member in staying)))
        decision.records += group.tombstones_of(everybody)
        decision.records.append(record)
        for member_id in everybody:
            decision.effects += self._rebalancing.cancel_timers(group.group_id, member_id)
        decision.effects += [
            SetTimer((CLASSIC_SESSION, group.group_id, stored.member_id), stored.session_timeout_ms)
            for stored in record.members
        ]
        log.info("group %s becomes a classic group", group.group_id)
        if reason is not None:
            self._histories.of(group.group_id).because(reason)
            decision.effects.append(SetTimer((DOWNGRADED, group.group_id), 0))
