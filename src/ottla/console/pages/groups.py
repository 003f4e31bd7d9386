"""Groups: the list, and a page for each with lag, members and rebalances."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console.cluster import GroupPage, LagRow
from ottla.console.pages.base import Entry, Pages, neighbours, number_of, query_of
from ottla.console.plots import plot
from ottla.console.share_deliveries import share_rows
from ottla.console.values import human_duration

SHOWN: Final = 200
"""Partitions of a group on its page."""


class GroupPages(Pages):
    """Groups of every kind, to look at."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/groups", "Groups", "g"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/groups", self.groups), Route("/groups/{group:path}", self.group)]

    async def groups(self, request: Request) -> Response:
        """The list of groups."""
        query = query_of(request)
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            page = await view.groups_page(query.get("q", ""), number_of(query, "page"))
            lags = await view.group_lags(page.rows)
            return {"page": page, "lags": lags, "pages": neighbours(request, page.number, page.last)}

        return await self.live_page(request, "groups.html", fragment)

    async def group(self, request: Request) -> Response:
        """A group: lag, members, and why it rebalanced."""
        name = request.path_params["group"]
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            view.trends.follow(("group", name), lambda: view.group(name))
            group: GroupPage | None = await view.group(name)
            if group is None:
                raise HTTPException(404, f"There is no group {name!r}.")
            trend = view.trends.of(("group", name))
            return {
                "group": group,
                "lags": _largest(group.lags),
                "shared": await share_rows(view, name) if group.kind == "share" else None,
                "lag": sum(each.lag or 0 for each in group.lags),
                "behind": trend.lag,
                "records": plot(trend.records.samples, lambda count: f"{count:,.0f} records"),
                "seconds": plot(trend.seconds.samples, human_duration),
            }

        return await self.live_page(request, "group.html", fragment)


def _largest(lags: Sequence[LagRow]) -> Sequence[LagRow]:
    """All partitions; of very many, those with the largest lag."""
    if len(lags) <= SHOWN:
        return lags
    return sorted(lags, key=lambda each: -(each.lag or 0))[:SHOWN]
