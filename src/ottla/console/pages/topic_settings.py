"""A topic's settings beside their defaults or another topic's, and its size over time."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console import topic_settings
from ottla.console.pages.base import Pages, query_of
from ottla.console.plots import plot
from ottla.console.values import human_bytes


class TopicSettingPages(Pages):
    """What topics are set to, and how they grow."""

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [Route("/topics/{topic}/compare", self.settings), Route("/topics/{topic}/size", self.size)]

    async def settings(self, request: Request) -> Response:
        """All settings, those that differ first."""
        topic = request.path_params["topic"]
        other = query_of(request).get("with", "")
        view = self.view(request)
        names = {each.name for each in await view.topics()}
        for name in (topic, other):
            if name and name not in names:
                raise HTTPException(404, f"There is no topic {name!r}.")
        try:
            mine = await topic_settings.settings(view, topic)
            theirs = await topic_settings.settings(view, other) if other else None
        except KafkaException as refused:
            raise HTTPException(403, f"The cluster refuses: {refused.args[0].str()}") from None
        rows = topic_settings.compared(mine, theirs)
        return self.page(request, "topic_settings.html", topic=topic, other=other, rows=rows)

    async def size(self, request: Request) -> Response:
        """The size of the leaders' logs, as far back as it was sampled."""
        topic = request.path_params["topic"]
        view = self.view(request)

        async def fragment() -> dict[str, Any]:
            view.trends.follow(("topic", topic), lambda: view.partitions(topic))
            if not await view.partitions(topic):
                raise HTTPException(404, f"There is no topic {topic!r}.")
            trend = view.trends.of(("topic", topic))
            return {
                "topic": topic,
                "size": plot(trend.bytes.samples, human_bytes),
                "records": plot(trend.records.samples, lambda count: f"{count:,.0f}"),
            }

        return await self.live_page(request, "topic_size.html", fragment)
