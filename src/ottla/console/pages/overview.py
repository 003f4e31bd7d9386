"""The overview: what is healthy, and what is not."""

from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console.overview import overview
from ottla.console.pages.base import Entry, Pages


class OverviewPages(Pages):
    """The first page."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/", "Overview", "o"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/", self.overview)]

    async def overview(self, request: Request) -> Response:
        """What is healthy, and what is not."""
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            return (await overview(view))._asdict()

        return await self.live_page(request, "overview.html", fragment)
