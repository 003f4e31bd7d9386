"""The overview: what is healthy, and what is not."""

from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console.cluster import ClusterView
from ottla.console.findings import findings
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
            return await view.shared.get("overview", lambda: _overview(view))

        return await self.live_page(request, "overview.html", fragment)


async def _overview(view: ClusterView) -> dict[str, Any]:
    cluster = await view.cluster()
    leaders: dict[int, int] = dict.fromkeys(cluster.brokers, 0)
    replicas: dict[int, int] = dict.fromkeys(cluster.brokers, 0)
    for state in cluster.partitions.values():
        if state.leader is not None:
            leaders[state.leader] += 1
        for replica in state.replicas:
            replicas[replica] = replicas.get(replica, 0) + 1
    topics = await view.topics()
    groups = await view.groups()
    return {
        "cluster": cluster,
        "findings": findings(cluster, {}),
        "leaders": leaders,
        "replicas": replicas,
        "topics": sum(not topic.is_internal for topic in topics),
        "partitions": len(cluster.partitions),
        "groups": len(groups),
    }
