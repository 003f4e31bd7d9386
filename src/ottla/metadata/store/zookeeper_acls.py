"""The ACLs of nodes in ZooKeeper, as Kafka 3.9 decides (`ZkData.defaultAcls`). PURE.

With `zookeeper.set.acl`, nodes belong to their creator: to everybody with the same login, as brokers have. All others
may read them, but not the passwords, settings and tokens among them.
"""

from collections.abc import Callable
from typing import Any, Final

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

SECRETS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN: Final = "/consumers"
"""Where clients of Kafka 0.8 keep theirs."""

Acls = list[Any]
"""Kazoo's `ACL`s."""


def open_to_everybody(path: str) -> Acls:
    """Without `zookeeper.set.acl`."""
    return list(OPEN_ACL_UNSAFE)


def acls_below(root: str) -> Callable[[str], Acls]:
    """The function from a whole path to its node's ACLs; `root` is the path that the cluster keeps everything below."""

    def acls(path: str) -> Acls:
        own = path[len(root) :] if path.startswith(f"{root}/") else ""
        if own == OPEN:
            return list(OPEN_ACL_UNSAFE)
        return [*CREATOR_ALL_ACL, *([] if own.startswith(SECRETS) else READ_ACL_UNSAFE)]

    return acls
