"""Large answers of a controller, about its metadata log: few at a time, and none while there is no room for them.

Clients that take nothing can so hold up others, as many as they are. Two things bound that: clients have turns one
after the other, by principal and host, and a node that has waited for `PATIENCE_S` is given a small answer instead.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ottla.server.memory import MemoryBudget

LARGE_ANSWERS: Final = 8
SMALL_ANSWER_BYTES: Final = 16 << 10
"""An answer of this size needs no turn."""
PATIENCE_S: Final = 0.5
"""How long a node waits for a large answer, before it has to do with a small one."""
ROOM_AGAIN_S: Final = 0.05

Client = tuple[str, str]
"""Principal and host."""


class LargeAnswers:
    """The turns of one controller's clients. On the loop's thread."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._free = LARGE_ANSWERS
        self._waiting: dict[Client, deque[asyncio.Future[None]]] = {}
        """By client; the one whose turn comes next is first."""

    @asynccontextmanager
    async def turn(self, client: Client, *, patience_s: float | None = None) -> AsyncIterator[None]:
        """Wait until another one may be made: what it holds is counted when it is made.

        Raises TimeoutError after `patience_s`.
        """
        async with asyncio.timeout(patience_s):
            await self._take_place(client)
            try:
                while not self._memory.room_for_answer():  # noqa: ASYNC110 # nothing signals that there is room
                    await asyncio.sleep(ROOM_AGAIN_S)
            except BaseException:
                self._leave_place()
                raise
        try:
            yield
        finally:
            self._leave_place()

    async def _take_place(self, client: Client) -> None:
        if self._free:
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(client, deque())
        waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave_place()  # it was given to one that is gone
            elif place in waiting:
                waiting.remove(place)
                if not waiting and self._waiting.get(client) is waiting:
                    del self._waiting[client]
            raise

    def _leave_place(self) -> None:
        """Give it to the next client that waits."""
        while self._waiting:
            client, waiting = next(iter(self._waiting.items()))
            del self._waiting[client]
            place = waiting.popleft()
            if waiting:
                self._waiting[client] = waiting  # behind the others
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
