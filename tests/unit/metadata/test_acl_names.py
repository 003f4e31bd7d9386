"""Names of resources that ZooKeeper would take for something else, or refuse together with all others."""

import asyncio
from typing import Any

import pytest

from ottla.errors import InvalidRequest
from ottla.metadata.acls import Acls
from ottla.security.acls import AccessRule, AclBinding, PatternType, PermissionType, ResourcePattern, StandardAuthorizer
from ottla.security.authorization import Operation, ResourceType


@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
@pytest.mark.parametrize(
    "name", ["../../controller", "a/b", "/", "a/", ".", "..", "a\0b", "a\nb", "\x9f", "\U0001f600"]
)
def test_a_name_that_looks_like_a_path_is_refused(name: str, pattern: PatternType) -> None:
    store: Any = None  # which is not asked
    acls = Acls(store, StandardAuthorizer(), shared=True)
    rule = AccessRule("User:alice", "*", Operation.READ, PermissionType.ALLOW)
    (refused,) = asyncio.run(acls.create([AclBinding(ResourcePattern(ResourceType.GROUP, name, pattern), rule)]))
    assert isinstance(refused, InvalidRequest)
    assert "invalid resource name" in str(refused)
