"""Transactions: open ones, one with what it holds back, and hanging ones."""

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.admin import NotFound
from ottla.console import transactions
from ottla.console.cluster import page_of
from ottla.console.pages.base import Entry, Pages, neighbours, number_of, query_of

EVERY_S = 5.0
HANGING_EVERY_S = 60.0


class TransactionPages(Pages):
    """Transactions, to look at."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/transactions", "Transactions", "x"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/transactions", self.transactions),
            Route("/transactions/{transactional_id:path}", self.transaction),
            Route("/hanging-transactions", self.hanging),
        ]

    async def transactions(self, request: Request) -> Response:
        """The list of transactional ids."""
        query = query_of(request)
        view = self.view(request)
        number = number_of(query, "page")

        async def fragment() -> dict[str, Any]:
            listed = await transactions.listed(view, only_open=query.get("state") != "all")
            page = page_of(transactions.matching(listed, query.get("q", "")), number)
            return {"page": page, "pages": neighbours(request, page.number, page.last), "now_ms": time.time() * 1_000}

        return await self.live_page(request, "transactions.html", fragment, EVERY_S)

    async def transaction(self, request: Request) -> Response:
        """A transaction: its partitions, what it holds back, and from which groups."""
        name = request.path_params["transactional_id"]
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            try:
                found = await transactions.described(view, name)
            except NotFound:
                raise HTTPException(404, f"There is no transactional id {name!r}.") from None
            return {"found": found, "known": found.transaction, "now_ms": time.time() * 1_000}

        return await self.live_page(request, "transaction.html", fragment, EVERY_S)

    async def hanging(self, request: Request) -> Response:
        """Open transactions that no coordinator will end."""
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            return {"hanging": await transactions.hanging(view)}

        return await self.live_page(request, "hanging.html", fragment, HANGING_EVERY_S)
