"""The ACLs of a cluster: read from the metadata store, changed there, and followed as other brokers change them.

    CreateAcls, DeleteAcls -> commit (store) -> rules of this broker's authorizer
    another broker -> notification -> the changed rules are read -> rules of this broker's authorizer

Every broker writes ACLs itself, as Kafka 3.9 does with ZooKeeper. A resource whose rules cannot be read is closed to
all but super users until they can be.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla.errors import ApiError, ErrorCode, InvalidRequest, OttlaError
from ottla.metadata.notifications import Notifications
from ottla.metadata.store import acl_layout
from ottla.metadata.store.base import (
    Create,
    Delete,
    MetadataStore,
    Node,
    Operation,
    SessionEvent,
    StoreConflict,
    StoreUnavailable,
    TransactionTooLarge,
    Update,
)
from ottla.security.acls import (
    EVERYBODY,
    WILDCARD,
    AccessRule,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
    StandardAuthorizer,
    check_binding,
)
from ottla.security.authorization import Operation as AclOperation
from ottla.security.authorization import ResourceType
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

ATTEMPTS: Final = 20
RETRY_S: Final = 1.0
CLOSED: Final = (AccessRule(EVERYBODY, WILDCARD, AclOperation.ALL, PermissionType.DENY),)
"""The rules of a resource whose rules cannot be read."""
_TREES: Final = (acl_layout.LITERAL_PATH, acl_layout.PREFIXED_PATH)
_CHANGES: Final = (acl_layout.LITERAL_CHANGES_PATH, acl_layout.PREFIXED_CHANGES_PATH)

Rules = tuple[AccessRule, ...]
_NOT_IN_ZOOKEEPER: Final = re.compile("[/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]|^\\.{1,2}$", re.DOTALL)
"""What no part of a path there may have, or be: `PathUtils` of ZooKeeper."""


def matching(authorizer: StandardAuthorizer, wanted: AclFilter) -> list[AclBinding]:
    """The bindings of an authorizer that a filter means."""
    return [binding for binding in _candidates(authorizer, wanted) if wanted.meets(binding)]


def _candidates(authorizer: StandardAuthorizer, wanted: AclFilter) -> Iterable[AclBinding]:
    exact = wanted.pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    if not exact or wanted.name is None or wanted.type is ResourceType.ANY:
        return authorizer.bindings()
    resource = ResourcePattern(wanted.type, wanted.name, wanted.pattern)
    return [AclBinding(resource, rule) for rule in authorizer.rules(resource)]


class Acls(Notifications):
    """The rules in the store, and those of this broker's authorizer. On the loop's thread."""

    def __init__(self, store: MetadataStore, authorizer: StandardAuthorizer, *, shared: bool) -> None:
        """`shared`: other brokers use the store, too."""
        super().__init__(store, _CHANGES, "ACLs")
        self.authorizer = authorizer
        self._shared = shared
        self._versions: dict[ResourcePattern, int] = {}
        self._malformed: set[ResourcePattern] = set()
        self._changing = asyncio.Lock()
        self._tasks = Tasks()

    async def open(self) -> None:
        """Read all rules, and follow their changes. Raises `StoreUnavailable`."""
        known: dict[str, Node] = {}
        for directory in _CHANGES:
            known |= await self._store.read(directory)
        await self._read_all()
        if self._shared:
            self._store.on_session(self._session_changed)
            self.start(known)

    async def close(self) -> None:
        """Stop following changes."""
        await self._tasks.close()
        await super().close()

    # -- reading -----------------------------------------------------------------------------------------------------

    async def take(self, news: Sequence[Node]) -> None:
        """Read the rules that other brokers have changed."""
        async with self._changing:  # or a commit under way would put back what it has planned before
            for resource in dict.fromkeys(filter(None, map(acl_layout.read_notification, news))):
                await self._read(resource)

    async def _read(self, resource: ResourcePattern) -> None:
        path = acl_layout.acl_path(resource)
        self._take(resource, path, (await self._store.read(path)).get(path))

    async def _read_all(self) -> None:
        found: dict[ResourcePattern, tuple[str, Node]] = {}
        for tree in _TREES:
            for path, node in (await self._store.read(tree)).items():
                resource = acl_layout.read_acl_path(path)
                if resource is not None:
                    found[resource] = path, node
        for resource in self.authorizer.resources():
            if resource not in found:
                self._take(resource, acl_layout.acl_path(resource), None)
        for resource, (path, node) in found.items():
            self._take(resource, path, node)

    def _take(self, resource: ResourcePattern, path: str, node: Node | None) -> None:
        self._malformed.discard(resource)
        if node is None:
            self._versions.pop(resource, None)
            self.authorizer.set_rules(resource, ())
            return
        self._versions[resource] = node.version
        try:
            rules = acl_layout.read_acl_node(path, node)
        except acl_layout.MalformedAcls as malformed:
            log.error("%s; only super users may use %s until they can be", malformed, resource.name)
            self._malformed.add(resource)
            rules = CLOSED
        self.authorizer.set_rules(resource, rules)

    def _session_changed(self, event: SessionEvent) -> None:
        """Read everything again: notifications may have come and gone while this broker was away."""
        if event is not SessionEvent.LOST:
            self._tasks.spawn(self._read_again(), "ACLs after another session with the store")

    async def _read_again(self) -> None:
        while True:
            try:
                async with self._changing:
                    await self._read_all()
            except StoreUnavailable as failed:
                log.warning("ACLs cannot be read now, retrying; those known hold: %s", failed)
                await asyncio.sleep(RETRY_S)
            else:
                return

    # -- changing ----------------------------------------------------------------------------------------------------

    async def create(self, bindings: Sequence[AclBinding]) -> list[OttlaError | None]:
        """Add bindings, all that can be in one commit; answers in the order asked."""
        answers: list[OttlaError | None] = [self._refusal(binding) for binding in bindings]
        added: dict[ResourcePattern, list[AccessRule]] = {}
        for binding, refused in zip(bindings, answers, strict=True):
            if refused is None:
                added.setdefault(binding.resource, []).append(binding.rule)

        def plan(resource: ResourcePattern) -> Rules:
            return tuple(dict.fromkeys([*self.authorizer.rules(resource), *added[resource]]))

        failed = await self._change(added, plan)
        return [refused or failed.get(binding.resource) for binding, refused in zip(bindings, answers, strict=True)]

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | OttlaError]:
        """Remove what the filters mean; answers for each what was removed, or why not, in the order asked."""
        found: list[list[AclBinding]] = []
        for wanted in filters:  # each of which may look at every rule
            found.append(self.matching(wanted))
            await asyncio.sleep(0)
        removed: dict[ResourcePattern, set[AccessRule]] = {}
        for resource, rule in {binding for bindings in found for binding in bindings}:
            removed.setdefault(resource, set()).add(rule)

        def plan(resource: ResourcePattern) -> Rules:
            return tuple(rule for rule in self.authorizer.rules(resource) if rule not in removed[resource])

        failed = await self._change(removed, plan)
        answers: list[list[AclBinding] | OttlaError] = []
        for bindings in found:
            problem = next((failed[each.resource] for each in bindings if each.resource in failed), None)
            answers.append(bindings if problem is None else problem)
        return answers

    def matching(self, wanted: AclFilter) -> list[AclBinding]:
        """The bindings that a filter means."""
        return matching(self.authorizer, wanted)

    def _refusal(self, binding: AclBinding) -> OttlaError | None:
        try:
            check_binding(binding)
            if self._shared and _NOT_IN_ZOOKEEPER.search(binding.resource.name):
                raise InvalidRequest(
                    f"ACL binding contains invalid resource name: {binding.resource.name} (ZooKeeper takes no "
                    "slash, no control character, and neither . nor ..)"
                )
        except OttlaError as refused:
            return refused
        return None

    async def _change(
        self, resources: Mapping[ResourcePattern, object], plan: Callable[[ResourcePattern], Rules]
    ) -> dict[ResourcePattern, OttlaError]:
        """Commit planned rules, in one transaction if the store takes it; answers what failed, and why."""
        async with self._changing:
            wanted = [each for each in resources if each not in self._malformed]
            failed: dict[ResourcePattern, OttlaError] = {
                each: ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the ACLs at {acl_layout.acl_path(each)} cannot be read: mend or remove them first",
                )
                for each in resources
                if each in self._malformed
            }
            try:
                await self._commit(wanted, plan)
            except TransactionTooLarge:
                for resource in wanted:
                    try:
                        await self._commit([resource], plan)
                    except OttlaError as problem:
                        failed[resource] = problem
            except OttlaError as problem:
                failed.update(dict.fromkeys(wanted, problem))
            return failed

    async def _commit(self, resources: Sequence[ResourcePattern], plan: Callable[[ResourcePattern], Rules]) -> None:
        for _ in range(ATTEMPTS):
            planned = {each: plan(each) for each in resources}
            changed = {each: rules for each, rules in planned.items() if rules != self.authorizer.rules(each)}
            if not changed:
                return
            operations = [self._operation(resource, rules) for resource, rules in changed.items()]
            if self._shared:
                operations += [acl_layout.change_notification(resource) for resource in changed]
            try:
                await self._store.commit(operations)
            except StoreConflict:
                for resource in changed:
                    await self._read(resource)
                continue
            except StoreUnavailable:  # it may have been carried out all the same
                self._tasks.spawn(self._read_again(), "ACLs after a commit that failed")
                raise
            for resource, rules in changed.items():
                self._committed(resource, rules)
            return
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "others kept changing the same ACLs: try again")

    def _operation(self, resource: ResourcePattern, rules: Rules) -> Operation:
        path, version = acl_layout.acl_path(resource), self._versions.get(resource)
        if version is None:
            return Create(path, acl_layout.acl_node(rules))
        return Update(path, acl_layout.acl_node(rules), version) if rules else Delete(path, version)

    def _committed(self, resource: ResourcePattern, rules: Rules) -> None:
        if rules:
            self._versions[resource] = self._versions.get(resource, -1) + 1
        else:
            self._versions.pop(resource, None)
        self.authorizer.set_rules(resource, rules)
        log.info("ACLs of %s %s %s: %d", resource.pattern.name, resource.type.name, resource.name, len(rules))
