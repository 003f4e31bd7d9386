"""What stands in ZooKeeper, as another client sees it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient


@contextmanager
def connected(connect: str) -> Iterator[KazooClient]:
    """A client of its own, below the path in `connect`, which is made if it is not there."""
    servers, _, root = connect.partition("/")
    if root:
        with connected(servers) as above:
            above.ensure_path(f"/{root}")
    client = KazooClient(connect)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def tree(client: KazooClient) -> dict[str, Any]:
    """Every node: its JSON read, None where it has no data."""
    found: dict[str, Any] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        data, _ = client.get(path)
        found[path] = json.loads(data) if data else None
        waiting += [f"{path.rstrip('/')}/{child}" for child in client.get_children(path)]
    return found
