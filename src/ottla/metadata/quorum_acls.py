"""The ACLs of a cluster with a quorum of controllers: read from its log, and changed by the active controller.

    CreateAcls, DeleteAcls -> records (active controller) -> log -> rules of every node's authorizer

Rules that cannot be read, since a newer version wrote them, close their resource to all but super users.
"""

import logging
from collections.abc import Sequence
from uuid import UUID

from ottla.cluster.metadata_log.state import AclPattern, ClusterState
from ottla.errors import OttlaError
from ottla.metadata.acls import CLOSED, Rules, matching
from ottla.metadata.quorum_decisions import QuorumDecisions
from ottla.metadata.quorum_replay import Advance
from ottla.metadata.tree_records import access_control_record
from ottla.protocol.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.protocol.schema import Message
from ottla.security.acls import (
    AccessRule,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
    check_binding,
)
from ottla.security.authorization import Operation, ResourceType
from ottla.slices import Slices

log = logging.getLogger(__name__)


class FollowedAcls:
    """The rules in the log, and those of this node's authorizer. On the loop's thread."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self.authorizer = authorizer

    def follow(self, advance: Advance) -> None:
        """Take over what has changed."""
        if advance.is_new:
            self.follow_anew(advance.state)
            return
        for pattern in advance.acls:
            self._take(pattern, advance.state)

    def follow_anew(self, state: ClusterState) -> None:
        """Take over everything: the state is another one than before."""
        known = {each for each in map(_resource, state.acls) if each is not None}
        for resource in self.authorizer.resources():
            if resource not in known:
                self.authorizer.set_rules(resource, ())
        for pattern in state.acls:
            self._take(pattern, state)

    def _take(self, pattern: AclPattern, state: ClusterState) -> None:
        resource = _resource(pattern)
        if resource is None:
            log.error("there are ACLs of a kind of resource that is not known here: %s", pattern)
            return
        try:
            rules: Rules = tuple(map(_rule, state.acls.get(pattern, {}).values()))
        except ValueError as unknown:
            log.error("ACLs of %s cannot be read (%s); only super users may use it", resource.name, unknown)
            rules = CLOSED
        self.authorizer.set_rules(resource, rules)

    def matching(self, wanted: AclFilter) -> list[AclBinding]:
        """The bindings that a filter means."""
        return matching(self.authorizer, wanted)


class QuorumAcls(FollowedAcls):
    """The rules in the log on a controller, which changes them while it is the active one."""

    def __init__(self, authorizer: StandardAuthorizer, decisions: QuorumDecisions, slices: Slices) -> None:
        super().__init__(authorizer)
        self._decisions = decisions
        self._slices = slices

    async def create(self, bindings: Sequence[AclBinding]) -> list[OttlaError | None]:
        """Add bindings, all that pass in one change; answers in the order asked."""
        answers: list[OttlaError | None] = []
        records: dict[AclBinding, Message] = {}
        async with self._decisions.changing:
            for binding in bindings:
                await self._slices.pause()
                try:
                    self._decisions.check_active()
                    check_binding(binding)
                except OttlaError as refused:
                    answers.append(refused.with_traceback(None))
                    continue
                answers.append(None)
                if binding.rule not in self.authorizer.rules(binding.resource):
                    records[binding] = access_control_record(binding)
            try:
                await self._decisions.commit_records(list(records.values()))
            except OttlaError as problem:
                return [answer or problem for answer in answers]
        return answers

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | OttlaError]:
        """Remove what the filters mean; answers for each what was removed, or why not, in the order asked."""
        async with self._decisions.changing:
            try:
                self._decisions.check_active()
                found: list[list[AclBinding]] = []
                for wanted in filters:  # each of which may look at every rule
                    await self._slices.pause()
                    found.append(self.matching(wanted))
                ids = self._ids({binding for bindings in found for binding in bindings})
                await self._decisions.commit_records([RemoveAccessControlEntryRecord(id=acl_id) for acl_id in ids])
            except OttlaError as problem:
                return [problem for _ in filters]
        return [*found]

    def _ids(self, bindings: set[AclBinding]) -> list[UUID]:
        state = self._decisions.state
        return [
            acl_id
            for resource in {binding.resource for binding in bindings}
            for acl_id, record in state.acls.get(AclPattern(resource.type, resource.name, resource.pattern), {}).items()
            if AclBinding(resource, _rule(record)) in bindings
        ]


def _resource(pattern: AclPattern) -> ResourcePattern | None:
    try:
        return ResourcePattern(ResourceType(pattern.resource_type), pattern.name, PatternType(pattern.pattern_type))
    except ValueError:
        return None


def _rule(record: AccessControlEntryRecord) -> AccessRule:
    """Raises ValueError for an operation or a permission that is not known."""
    return AccessRule(
        record.principal, record.host, Operation(record.operation), PermissionType(record.permission_type)
    )
