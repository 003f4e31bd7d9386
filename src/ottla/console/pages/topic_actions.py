"""Topics, to change: create, configure, add partitions, trim and delete."""

import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from confluent_kafka.admin import OffsetSpec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.partition import Partition
from ottla.console.access.audit import Change
from ottla.console.access.roles import Role
from ottla.console.changes import Changes
from ottla.console.cluster import ClusterView, PartitionRow
from ottla.console.pages.actions import ActionPages, Form, confirmed
from ottla.console.pages.base import number_of, query_of, time_of
from ottla.console.previews import (
    LOSING,
    Trim,
    beyond_size,
    counted,
    format_offsets,
    keeps_less,
    loss,
    older,
    parse_offsets,
    trims,
    whole,
)
from ottla.console.values import human_bytes

MOST_PARTITIONS: Final = 10_000
"""The limit of a topic made here, so that a slip of the finger costs brokers little."""
MOST_DIGITS: Final = 18
"""A setting has no number of more digits; brokers refuse it."""


class TopicActions(ActionPages):
    """Forms for topics."""

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/create-topic", self.creation, methods=["GET"]),
            self.action("/create-topic", self.create, Role.EDITOR),
            Route("/topics/{topic}/partitions", self.partitions, methods=["GET"]),
            self.action("/topics/{topic}/partitions", self.add_partitions, Role.EDITOR),
            Route("/topics/{topic}/settings", self.setting, methods=["GET"]),
            self.action("/topics/{topic}/settings", self.configure, Role.EDITOR),
            Route("/topics/{topic}/trim", self.trimming, methods=["GET"]),
            self.action("/topics/{topic}/trim", self.trim, Role.ADMIN),
            Route("/topics/{topic}/delete", self.deletion, methods=["GET"]),
            self.action("/topics/{topic}/delete", self.delete, Role.ADMIN),
        ]

    async def _rows(self, request: Request) -> tuple[str, list[PartitionRow]]:
        topic = request.path_params["topic"]
        self.view(request).forget()  # what is previewed and done is of now, not of two seconds ago
        rows = await self.view(request).partitions(topic)
        if not rows:
            raise HTTPException(404, f"There is no topic {topic!r}.")
        return topic, rows

    # -- create ------------------------------------------------------------------------------------------------------

    async def creation(self, request: Request) -> Response:
        """The form for a new topic."""
        self.needs(request, Role.EDITOR)
        return self.page(request, "create_topic.html")

    async def create(self, request: Request, form: Form) -> Response:
        """Create a topic."""
        name = form.get("name", "").strip()
        if not name:
            raise HTTPException(400, "A topic has a name.")
        partitions = _count(form, "partitions", MOST_PARTITIONS)
        replicas = _count(form, "replicas", 100)
        settings = _assignments(form.get("settings", ""))
        view = self.view(request)
        counts: list[tuple[str, str | int]] = [("partitions", partitions), ("replication_factor", replicas)]
        return await self.change(
            request,
            Change("CREATE_TOPICS", "TOPIC", name, (*counts, *settings.items())),
            lambda: Changes(view).create_topic(name, partitions, replicas, settings),
            f"Topic {name} has been created.",
            _address(name),
        )

    # -- partitions --------------------------------------------------------------------------------------------------

    async def partitions(self, request: Request) -> Response:
        """The form for more partitions."""
        self.needs(request, Role.EDITOR)
        topic, rows = await self._rows(request)
        return self.page(request, "add_partitions.html", topic=topic, count=len(rows))

    async def add_partitions(self, request: Request, form: Form) -> Response:
        """Add partitions."""
        topic, rows = await self._rows(request)
        count = number_of(form, "count")
        if not len(rows) < count <= MOST_PARTITIONS:
            raise HTTPException(
                400,
                f"{topic} has {counted(len(rows), 'partition')}: name a larger number, {MOST_PARTITIONS:,} at most.",
            )
        view = self.view(request)
        return await self.change(
            request,
            Change("CREATE_PARTITIONS", "TOPIC", topic, (("partitions", count),)),
            lambda: Changes(view).add_partitions(topic, count),
            f"{topic} has {counted(count, 'partition')} now.",
            _address(topic),
        )

    # -- settings ----------------------------------------------------------------------------------------------------

    async def setting(self, request: Request) -> Response:
        """The form for a setting; with a value, what that would lose."""
        self.needs(request, Role.EDITOR)
        topic, rows = await self._rows(request)
        query = query_of(request)
        held = {each.name: each for each in await self.view(request).settings(topic)}
        name = query.get("name", "")
        if name not in held:
            return self.page(request, "settings.html", topic=topic, settings=list(held.values()), losing=LOSING)
        current = held[name]
        is_chosen = "value" in request.query_params or query.get("default") == "1"
        value = None if query.get("default") == "1" else query.get("value", "" if is_chosen else current.value)
        losses = is_chosen and keeps_less(name, current.value, value)
        return self.page(
            request,
            "setting.html",
            topic=topic,
            setting=current,
            value=value,
            is_chosen=is_chosen,
            how=LOSING.get(name),
            losses=losses,
            loss=await self._setting_loss(self.view(request), topic, rows, name, value) if losses else "",
        )

    async def _setting_loss(
        self, view: ClusterView, topic: str, rows: list[PartitionRow], name: str, value: str | None
    ) -> str:
        """What is lost soon by a value of a setting; empty if that cannot be counted."""
        if value is None or not (value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS):
            return ""
        if name == "retention.bytes":
            beyond = beyond_size(rows, int(value))
            return f"about {human_bytes(beyond)} on the leaders" if beyond else "nothing at the moment"
        if name == "retention.ms":
            kept_from = max(time.time_ns() // 1_000_000 - int(value), 0)
            partitions = [Partition(topic, row.number) for row in rows]
            found = await view.offsets(partitions, OffsetSpec.for_timestamp(kept_from))
            lost = older(rows, {partition.partition: offset for partition, offset in found.items()})
            return f"up to {loss(lost)}" if lost else "nothing at the moment"
        return ""

    async def configure(self, request: Request, form: Form) -> Response:
        """Change a setting."""
        topic, _ = await self._rows(request)
        name = form.get("name", "")
        view = self.view(request)
        current = next((each for each in await view.settings(topic) if each.name == name), None)
        if current is None:
            raise HTTPException(400, f"Topics have no setting {name!r}.")
        value = None if form.get("default") == "1" else form.get("value", "")
        if keeps_less(name, current.value, value):
            await self.needs_to_act(request, Role.ADMIN)
            confirmed(form, topic)
        detail = (("setting", name), ("value", "(the default)" if value is None else value))
        return await self.change(
            request,
            Change("INCREMENTAL_ALTER_CONFIGS", "TOPIC", topic, detail),
            lambda: Changes(view).set_topic_setting(topic, name, value),
            f"{name} of {topic} is {'the default again' if value is None else value} now.",
            _address(topic),
        )

    # -- trim --------------------------------------------------------------------------------------------------------

    async def trimming(self, request: Request) -> Response:
        """The form to delete the oldest records; with a target, what is lost."""
        self.needs(request, Role.ADMIN)
        topic, rows = await self._rows(request)
        query = query_of(request)
        lost = trims(rows, await self._targets(self.view(request), topic, rows, query)) if query.get("before") else None
        return self.page(
            request,
            "trim.html",
            topic=topic,
            numbers=[row.number for row in rows],
            lost=lost,
            loss=loss(lost or ()),
            offsets=format_offsets({Partition(topic, each.partition): each.to for each in lost or ()}),
        )

    async def _targets(
        self, view: ClusterView, topic: str, rows: list[PartitionRow], query: Mapping[str, str]
    ) -> dict[int, int]:
        """The new first offset of each partition that is chosen. Raises HTTPException."""
        chosen = [row for row in rows if query.get("partition", "") in ("", str(row.number)) and row.end is not None]
        match query["before"]:
            case "end":
                return {row.number: row.end or 0 for row in chosen}
            case "offset":
                offset = number_of(query, "offset")
                if len(chosen) != 1:
                    raise HTTPException(400, "An offset counts within one partition: choose it.")
                return {chosen[0].number: offset}
            case "time":
                at = OffsetSpec.for_timestamp(time_of(query.get("time", "")))
                found = await view.offsets([Partition(topic, row.number) for row in chosen], at)
                ends = {row.number: row.end or 0 for row in chosen}
                return {
                    each.partition: ends[each.partition] if offset < 0 else offset for each, offset in found.items()
                }
        raise HTTPException(400, "Records are deleted before an offset, a time, or the end.")

    async def trim(self, request: Request, form: Form) -> Response:
        """Delete the oldest records."""
        topic, rows = await self._rows(request)
        confirmed(form, topic)
        offsets = offsets_of(form)
        if any(partition.topic != topic for partition in offsets):
            raise HTTPException(400, f"Only records of {topic} are deleted here.")
        lost = trims(rows, {partition.partition: offset for partition, offset in offsets.items()})
        view = self.view(request)
        detail = (("records", sum(each.records for each in lost)), ("offsets", format_offsets(offsets)))
        return await self.change(
            request,
            Change("DELETE_RECORDS", "TOPIC", topic, detail),
            lambda: Changes(view).trim(offsets),
            f"{loss(lost)} of {topic} have been deleted.",
            _address(topic),
        )

    # -- delete ------------------------------------------------------------------------------------------------------

    async def deletion(self, request: Request) -> Response:
        """What the deletion of a topic loses."""
        self.needs(request, Role.ADMIN)
        topic, rows = await self._rows(request)
        lost: list[Trim] = whole(rows)
        return self.page(request, "delete_topic.html", topic=topic, loss=loss(lost), count=len(rows))

    async def delete(self, request: Request, form: Form) -> Response:
        """Delete a topic."""
        topic, rows = await self._rows(request)
        confirmed(form, topic)
        lost = whole(rows)
        view = self.view(request)
        return await self.change(
            request,
            Change("DELETE_TOPICS", "TOPIC", topic, (("records", sum(each.records for each in lost)),)),
            lambda: Changes(view).delete_topic(topic),
            f"Topic {topic} has been deleted, with {loss(lost)}.",
            "/topics",
        )


def offsets_of(form: Form) -> dict[Partition, int]:
    """The offsets that a form was previewed with. Raises HTTPException."""
    try:
        return parse_offsets(form.get("offsets", ""))
    except ValueError:
        raise HTTPException(400, "There is nothing to do: choose first, and look at the preview.") from None


def _address(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"


def _count(form: Form, name: str, most: int) -> int:
    """A number of a form; -1, the broker's default, where it is empty. Raises HTTPException."""
    if not form.get(name):
        return -1
    count = number_of(form, name)
    if not 1 <= count <= most:
        raise HTTPException(400, f"The number of {name} is 1 to {most:,}.")
    return count


def _assignments(text: str) -> dict[str, str]:
    """Settings of lines KEY=VALUE. Raises HTTPException."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise HTTPException(400, f"A setting is a line KEY=VALUE, not {line!r}.")
        found[name] = value
    return found
