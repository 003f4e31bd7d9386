"""Requests with thousands of filters over access rules."""

import asyncio
from typing import Any

from ottla.metadata.acls import Acls
from ottla.security.acls import AclFilter, StandardAuthorizer


def test_others_are_served_between_two_filters() -> None:
    async def turns_during(filters: int) -> int:
        store: Any = None  # which is not asked, since nothing matches
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await Acls(store, StandardAuthorizer(), shared=False).delete([AclFilter(name="none")] * filters)
        counting.cancel()
        return turns

    assert asyncio.run(turns_during(50)) >= 50
