"""Groups, to change: move their positions, remove a member, delete them."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from confluent_kafka.admin import OffsetSpec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.moving import Move, Target, describe_moves, move
from ottla.client.partition import Partition
from ottla.console.access.audit import Change
from ottla.console.access.roles import Role
from ottla.console.changes import Changes
from ottla.console.cluster import EARLIEST, ClusterView, GroupPage
from ottla.console.pages.actions import ActionPages, Form, confirmed
from ottla.console.pages.base import number_of, query_of, time_of
from ottla.console.pages.topic_actions import offsets_of
from ottla.console.previews import counted, format_offsets, lag_change

MOVABLE: Final = ("classic", "consumer", "share")


class GroupActions(ActionPages):
    """Forms for groups; a group's name may have anything in it, so that it comes last in an address."""

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/seek-group/{group:path}", self.seeking, methods=["GET"]),
            self.action("/seek-group/{group:path}", self.seek, Role.EDITOR),
            Route("/remove-member/{group:path}", self.removal, methods=["GET"]),
            self.action("/remove-member/{group:path}", self.remove, Role.ADMIN),
            Route("/delete-group/{group:path}", self.deletion, methods=["GET"]),
            self.action("/delete-group/{group:path}", self.delete, Role.ADMIN),
        ]

    async def _group(self, request: Request) -> GroupPage:
        name = request.path_params["group"]
        self.view(request).forget()  # what is previewed and done is of now, not of two seconds ago
        group = await self.view(request).group(name)
        if group is None:
            raise HTTPException(404, f"There is no group {name!r}.")
        return group

    # -- seek --------------------------------------------------------------------------------------------------------

    async def seeking(self, request: Request) -> Response:
        """The form to move the positions of a group; with a target, where each goes."""
        self.needs(request, Role.EDITOR)
        group = await self._group(request)
        query = query_of(request)
        moves = await self._moves(self.view(request), group, query) if query.get("to") else None
        return self.page(
            request,
            "seek_group.html",
            group=group,
            is_movable=group.kind in MOVABLE,
            topics=sorted({row.partition.topic for row in group.lags}),
            moves=moves,
            sentence=describe_moves(moves or (), done=False),
            lag=lag_change(moves or (), group.lags),
            offsets=format_offsets({each.partition: each.to for each in moves or ()}),
        )

    async def _moves(self, view: ClusterView, group: GroupPage, query: Mapping[str, str]) -> list[Move]:
        """The moves that a query asks for, of the partitions where the group has a position. Raises HTTPException."""
        chosen = {
            row.partition: row.committed
            for row in group.lags
            if query.get("topic", "") in ("", row.partition.topic)
            and query.get("partition", "") in ("", str(row.partition.partition))
        }
        target = _target(query)
        firsts = await view.offsets(chosen, EARLIEST)
        ends = await view.offsets(chosen, committed=True)
        at_time: dict[Partition, int] = {}
        if target.time_ms is not None:
            found = await view.offsets(chosen, OffsetSpec.for_timestamp(target.time_ms))
            at_time = {partition: offset for partition, offset in found.items() if offset >= 0}
        return [
            move(partition, was, firsts[partition], ends[partition], target, at_time.get(partition))
            for partition, was in sorted(chosen.items())
            if partition in firsts and partition in ends
        ]

    async def seek(self, request: Request, form: Form) -> Response:
        """Move the positions of a group."""
        group = await self._group(request)
        offsets = offsets_of(form)
        view = self.view(request)
        return await self.change(
            request,
            Change("OFFSET_COMMIT", "GROUP", group.name, (("offsets", format_offsets(offsets)),)),
            lambda: Changes(view).seek(group.name, group.kind, offsets),
            f"{counted(len(offsets), 'position')} of {group.name} moved.",
            _address(group.name),
        )

    # -- members -----------------------------------------------------------------------------------------------------

    async def removal(self, request: Request) -> Response:
        """What the removal of a member does."""
        self.needs(request, Role.ADMIN)
        group = await self._group(request)
        wanted = query_of(request).get("member", "")
        member = next((each for each in group.members if each.member_id == wanted), None)
        if member is None:
            raise HTTPException(404, f"The group {group.name!r} has no such member any longer.")
        return self.page(request, "remove_member.html", group=group, member=member)

    async def remove(self, request: Request, form: Form) -> Response:
        """Have a member leave."""
        group = await self._group(request)
        member = form.get("member", "")
        confirmed(form, group.name)
        view = self.view(request)
        return await self.change(
            request,
            Change("LEAVE_GROUP", "GROUP", group.name, (("member", member),)),
            lambda: Changes(view).remove_member(group.name, group.kind, member),
            f"The member {member} has been removed.",
            _address(group.name),
        )

    # -- delete ------------------------------------------------------------------------------------------------------

    async def deletion(self, request: Request) -> Response:
        """What the deletion of a group loses."""
        self.needs(request, Role.ADMIN)
        group = await self._group(request)
        return self.page(request, "delete_group.html", group=group, positions=_positions(group))

    async def delete(self, request: Request, form: Form) -> Response:
        """Delete a group."""
        group = await self._group(request)
        confirmed(form, group.name)
        view = self.view(request)
        return await self.change(
            request,
            Change("DELETE_GROUPS", "GROUP", group.name, (("offsets", len(group.lags)),)),
            lambda: Changes(view).delete_group(group.name),
            f"The group {group.name} has been deleted, with {_positions(group)}.",
            "/groups",
        )


def _positions(group: GroupPage) -> str:
    return counted(sum(row.committed is not None for row in group.lags), "position")


def _address(group: str) -> str:
    return f"/groups/{quote(group, safe='')}"


def _target(query: Mapping[str, str]) -> Target:
    match query["to"]:
        case "earliest":
            return Target(earliest=True)
        case "latest":
            return Target(latest=True)
        case "offset":
            return Target(offset=number_of(query, "offset"))
        case "time":
            return Target(time_ms=time_of(query.get("time", "")))
    raise HTTPException(400, "A position moves to the earliest or latest record, to an offset or to a time.")
