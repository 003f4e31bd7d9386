"""PURE: circular dependencies among operations, each told by its shortest circle."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable

from tests.chaos.history import Operation


def shortest_cycles(
    operations: Collection[Operation], reads: Iterable[tuple[Operation, Operation]], *, through_time: bool
) -> list[list[Operation]]:
    """One shortest circle for each set of operations that depend on each other.

    Args:
        operations: all that happened.
        reads: (writer, reader) pairs; the writer comes first.
        through_time: whether one that ended before another began also comes first.
    """
    nodes = {operation.began: operation for operation in operations}
    after: dict[int, set[int]] = defaultdict(set)
    for writer, reader in reads:
        if writer.began in nodes and reader.began in nodes:
            after[writer.began].add(reader.began)
    if through_time:
        _add_time(operations, after)
    cycles = []
    for component in _components(after):
        circle = _shortest_circle(component, after)
        cycles.append([nodes[node] for node in circle if node in nodes])
    return cycles


def _add_time(operations: Collection[Operation], after: dict[int, set[int]]) -> None:
    """Let each operation come before all that began after it ended.

    Not edge by edge, which would be a square of them: through a chain of moments, one for each end. Moments have
    negative numbers.
    """
    moments: list[tuple[int, Operation | None, Operation | None]] = []
    for operation in operations:
        moments.append((operation.began, operation, None))
        if operation.ended is not None:
            moments.append((operation.ended, None, operation))
    latest: int | None = None
    for line, begins, ends in sorted(moments, key=lambda moment: moment[0]):
        if begins is not None and latest is not None:
            after[latest].add(begins.began)
        if ends is not None:
            after[ends.began].add(-line)
            if latest is not None:
                after[latest].add(-line)
            latest = -line


def _components(after: dict[int, set[int]]) -> list[set[int]]:
    """Strongly connected components of more than one node: Tarjan's algorithm, without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for root in list(after):
        if root in index:
            continue
        work = [(root, iter(after.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(after.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.add(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(component)
    return found


def _shortest_circle(component: set[int], after: dict[int, set[int]]) -> list[int]:
    """The circle with the fewest nodes through any of the component's, found breadth first."""
    best: list[int] = []
    for start in sorted(component, reverse=True)[:200]:  # a large one has many short circles: any will do
        came_from: dict[int, int] = {}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if start in after[node]:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                if not best or len(path) < len(best):
                    best = path[::-1]
                break
            for other in after[node] & component:
                if other not in came_from and other != start:
                    came_from[other] = node
                    queue.append(other)
    return best
