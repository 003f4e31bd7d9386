"""Users, access rules and quotas."""

from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console import security
from ottla.console.cluster import page_of
from ottla.console.pages.base import Entry, Pages, neighbours, number_of, query_of

EVERY_S = 10.0


class SecurityPages(Pages):
    """Users, access rules and quotas, to look at."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/security", "Security", "s"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/security", self.security)]

    async def security(self, request: Request) -> Response:
        """What the cluster shows of its users, rules and quotas."""
        query = query_of(request)
        view = self.view(request)
        text, number = query.get("q", ""), number_of(query, "page")

        async def fragment() -> dict[str, Any]:
            answers = [
                security.matching(await ask(view), text) for ask in (security.users, security.rules, security.quotas)
            ]
            pages = [page_of(each.rows, number) for each in answers]
            longest = max(pages, key=lambda page: page.total)
            return {
                "users": pages[0].rows,
                "rules": pages[1].rows,
                "quotas": pages[2].rows,
                "refusals": [each.refusal for each in answers],
                "totals": [each.total for each in pages],
                "page": longest,
                "pages": neighbours(request, longest.number, longest.last),
            }

        return await self.live_page(request, "security.html", fragment, EVERY_S)
