"""Transactions: open ones, one with what it holds back, and hanging ones."""

import time
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.admin import NotFound, Partition
from ottla.console import transactions
from ottla.console.access.audit import Change
from ottla.console.access.roles import Role
from ottla.console.cluster import page_of
from ottla.console.pages.actions import ActionPages, Form, confirmed
from ottla.console.pages.base import Entry, neighbours, number_of, query_of

EVERY_S = 5.0
HANGING_EVERY_S = 60.0


class TransactionPages(ActionPages):
    """Transactions, to look at and to abort."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/transactions", "Transactions", "x"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/transactions", self.transactions),
            Route("/transactions/{transactional_id:path}", self.transaction),
            Route("/hanging-transactions", self.hanging),
            self.action("/abort-transaction/{transactional_id:path}", self.abort, Role.ADMIN),
            self.action("/abort-hanging-transaction", self.abort_hanging, Role.ADMIN),
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

    # -- actions -----------------------------------------------------------------------------------------------------

    async def abort(self, request: Request, form: Form) -> Response:
        """Have the coordinator abort an open transaction, and fence its producer."""
        name = request.path_params["transactional_id"]
        confirmed(form, name)
        view = self.view(request)
        return await self.change(
            request,
            Change("ABORT_TRANSACTION", "TRANSACTIONAL_ID", name),
            lambda: view.dear(lambda admin: admin.abort_transaction(name)),
            f"The transaction of {name} is aborted, and its producer fenced.",
            f"/transactions/{quote(name, safe='')}",
        )

    async def abort_hanging(self, request: Request, form: Form) -> Response:
        """Abort a hanging transaction in its one partition. One that a coordinator knows is refused."""
        partition = Partition(form.get("topic", ""), number_of(form, "partition"))
        first = number_of(form, "first_offset")
        confirmed(form, str(partition))
        view = self.view(request)
        opened = await view.dear(lambda admin: admin.list_open_transactions([partition]))
        found = next((each for each in opened if each.first_offset == first), None)
        if found is None:
            raise HTTPException(404, f"No transaction that begins at offset {first} is open in {partition}.")
        return await self.change(
            request,
            Change("ABORT_HANGING_TRANSACTION", "TOPIC", partition.topic, (("partition", partition.partition),)),
            lambda: view.dear(lambda admin: admin.abort_hanging_transaction(found)),
            f"The transaction in {partition} is aborted: readers of committed records go on.",
            "/hanging-transactions",
        )
