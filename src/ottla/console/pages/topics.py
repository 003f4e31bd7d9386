"""Topics: the list, and a page for each with its partitions and settings."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console.cluster import PartitionRow
from ottla.console.pages.base import Entry, Pages, neighbours, number_of, query_of

SHOWN: Final = 200
"""Partitions of a topic on its page."""


class TopicPages(Pages):
    """Topics, to look at."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/topics", "Topics", "t"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/topics", self.topics), Route("/topics/{topic}", self.topic)]

    async def topics(self, request: Request) -> Response:
        """The list of topics."""
        query = query_of(request)
        view = self.view(request)
        internal = query.get("internal") == "1"

        async def fragment() -> dict[str, Any]:
            page = await view.topics_page(
                query.get("q", ""), query.get("state", ""), number_of(query, "page"), internal=internal
            )
            return {"page": page, "pages": neighbours(request, page.number, page.last)}

        return await self.live_page(request, "topics.html", fragment)

    async def topic(self, request: Request) -> Response:
        """A topic: partitions and settings."""
        name = request.path_params["topic"]
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            partitions = await view.partitions(name)
            if not partitions:
                raise HTTPException(404, f"There is no topic {name!r}.")
            return {
                "topic": name,
                "partitions": partitions,
                "shown": _worst(partitions),
                "settings": await view.settings(name),
                "records": sum((each.end or 0) - (each.first or 0) for each in partitions),
                "size_bytes": sum(each.size_bytes or 0 for each in partitions),
            }

        return await self.live_page(request, "topic.html", fragment)


def _worst(partitions: Sequence[PartitionRow]) -> Sequence[PartitionRow]:
    """All partitions; of very many, those without a leader or with replicas behind first."""
    if len(partitions) <= SHOWN:
        return partitions
    return sorted(partitions, key=lambda each: (each.leader is not None, len(each.in_sync) - len(each.replicas)))[
        :SHOWN
    ]
