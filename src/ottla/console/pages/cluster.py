"""The cluster: brokers with their disks, controllers, replicas that are behind, moves."""

from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console.brokers import cluster_page
from ottla.console.pages.base import Entry, Pages


class ClusterPages(Pages):
    """Brokers, to look at."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/cluster", "Cluster", "c"),)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/cluster", self.cluster)]

    async def cluster(self, request: Request) -> Response:
        """The brokers, and what is not where it should be."""
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            return {"found": await cluster_page(view)}

        return await self.live_page(request, "cluster.html", fragment)
