"""Connectors of the Connect clusters that the console was given: to look at, to order about, to configure."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.console.access.audit import Change
from ottla.console.access.roles import Role
from ottla.console.connector_views import parsed, restored, written
from ottla.console.connectors import ConnectCluster, WorkerProblem, written_offsets
from ottla.console.pages.actions import ActionPages, Form, confirmed
from ottla.console.pages.base import Entry, Shell, query_of

EVERY_S: Final = 4.0
SHOWN: Final = 200
"""Connectors of one list."""
LARGEST_CONFIG_BYTES: Final = 256 << 10
CHECKS: Final = 4
"""Configurations that are checked at a time; those of others are not."""
ORDERS: Final = {
    "restart": "What had failed is being restarted.",
    "pause": "It is being paused.",
    "resume": "It is being resumed.",
    "stop": "It is being stopped.",
}
NOT_THERE: Final = 404


class ConnectorPages(ActionPages):
    """Connectors and their tasks."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/connectors", "Connectors", "k"),)

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        workers = shell.access.settings.workers
        self._clusters = [ConnectCluster(number, *worker) for number, worker in enumerate(workers)]
        self._checks = 0

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        one = "{cluster:digits}/{name:path}"
        return [
            Route("/connectors", self.connectors),
            Route(f"/connectors/{one}", self.connector),
            Route("/new-connector/{cluster:digits}", self.new),
            Route(f"/edit-connector/{one}", self.edit, methods=["GET"]),
            self.action("/new-connector/{cluster:digits}", self.create, Role.ADMIN, LARGEST_CONFIG_BYTES),
            self.action(f"/edit-connector/{one}", self.change_config, Role.ADMIN, LARGEST_CONFIG_BYTES),
            self.action("/check-connector/{cluster:digits}", self.check, Role.ADMIN, LARGEST_CONFIG_BYTES),
            self.action(f"/order-connector/{one}", self.order, Role.EDITOR),
            self.action(f"/reset-connector/{one}", self.reset, Role.ADMIN),
            self.action(f"/move-connector/{one}", self.move, Role.ADMIN, LARGEST_CONFIG_BYTES),
            self.action(f"/delete-connector/{one}", self.delete, Role.ADMIN),
        ]

    # -- pages -------------------------------------------------------------------------------------------------------

    async def connectors(self, request: Request) -> Response:
        """All connectors with their tasks, those that have failed first."""
        text = query_of(request).get("q", "").lower()

        async def fragment() -> dict[str, Any]:
            listed = await asyncio.gather(*(cluster.listed() for cluster in self._clusters))
            clusters = [
                each._replace(connectors=[connector for connector in each.connectors if text in connector.name.lower()])
                for each in listed
            ]
            return {"clusters": clusters, "limit": SHOWN}

        return await self.live_page(request, "connectors.html", fragment, EVERY_S)

    async def connector(self, request: Request) -> Response:
        """One connector: its tasks and why they failed, its configuration, topics and offsets."""
        cluster, name = self._named(request)

        async def fragment() -> dict[str, Any]:
            found = await _found(cluster.described(name))
            return {"found": found, "written_offsets": written_offsets(found.offsets or ())}

        return await self.live_page(request, "connector.html", fragment, EVERY_S, cluster=cluster.number)

    async def new(self, request: Request) -> Response:
        """The form of a new connector."""
        cluster = self._cluster(request)
        return await self._form(request, cluster, "", "", "connector.class=\ntasks.max=1\n")

    async def edit(self, request: Request) -> Response:
        """The form of a connector's configuration, without its secrets."""
        cluster, name = self._named(request)
        if not self.viewer(request).may(Role.ADMIN):
            raise HTTPException(
                403, "To change a configuration takes the role admin, and a console that changes things."
            )
        described = await _found(cluster.described(name))
        return await self._form(request, cluster, name, name, written(described.config))

    async def _form(
        self, request: Request, cluster: ConnectCluster, name: str, given_name: str, text: str, problem: str = ""
    ) -> Response:
        try:
            plugins = await cluster.plugins()
        except WorkerProblem as away:
            plugins, problem = [], problem or str(away)
        path = f"edit-connector/{cluster.number}/{quote(name, safe='')}" if name else f"new-connector/{cluster.number}"
        return self.page(
            request,
            "connector_form.html",
            title=f"Configuration of {name}" if name else "A new connector",
            button="Change" if name else "Make",
            address=f"/{path}",
            cluster=cluster.number,
            name=name,
            given_name=given_name,
            text=text,
            plugins=plugins,
            problem=problem,
            infos=None,
        )

    # -- orders ------------------------------------------------------------------------------------------------------

    async def check(self, request: Request, form: Form) -> Response:
        """The worker's verdict on a configuration that is being typed; a part of a page."""
        cluster = self._cluster(request)
        infos, problem = None, ""
        if self._checks >= CHECKS:
            raise HTTPException(503, f"{CHECKS} configurations are being checked: this one is when you type on.")
        self._checks += 1
        try:
            infos = await cluster.validated(await self._config(cluster, form, form.get("name", ""), may_be_new=True))
        except (WorkerProblem, ValueError) as wrong:
            problem = str(wrong)
        finally:
            self._checks -= 1
        return HTMLResponse(self.render("parts/checked.html", infos=infos, problem=problem))

    async def create(self, request: Request, form: Form) -> Response:
        """Make a connector."""
        cluster = self._cluster(request)
        try:
            config = parsed(form.get("config", ""))
        except ValueError as wrong:
            raise HTTPException(400, f"Nothing was done: {wrong}.") from None
        name = form.get("name", "") or config.get("name", "")
        if not name:
            raise HTTPException(400, "Nothing was done: the connector needs a name.")
        return await self._do(
            request,
            cluster,
            name,
            "CREATE_CONNECTOR",
            cluster.set_config(name, {**config, "name": name}, only_new=True),
            f"Connector {name} was made.",
        )

    async def change_config(self, request: Request, form: Form) -> Response:
        """Give a connector another configuration."""
        cluster, name = self._named(request)
        try:
            config = await self._config(cluster, form, name)
        except (WorkerProblem, ValueError) as wrong:
            raise HTTPException(400, f"Nothing was done: {wrong}.") from None
        return await self._do(
            request,
            cluster,
            name,
            "ALTER_CONNECTOR",
            cluster.set_config(name, config),
            "The configuration was changed.",
        )

    async def _config(
        self, cluster: ConnectCluster, form: Form, name: str, *, may_be_new: bool = False
    ) -> Mapping[str, str]:
        """The configuration of a form, with the secrets that it did not show. Raises ValueError, WorkerProblem."""
        given = {**parsed(form.get("config", "")), **({"name": name} if name else {})}
        if not name:
            return given
        try:
            kept = await cluster.kept(name)
        except WorkerProblem as problem:
            if may_be_new and problem.status == NOT_THERE:
                return given
            raise
        return restored(given, kept)

    async def order(self, request: Request, form: Form) -> Response:
        """Restart, pause, resume or stop a connector."""
        cluster, name = self._named(request)
        order = form.get("order", "")
        if order not in ORDERS:
            raise HTTPException(400, f"There is no order {order!r}.")
        run = cluster.restart(name) if order == "restart" else cluster.turn(name, order)
        return await self._do(request, cluster, name, f"{order.upper()}_CONNECTOR", run, ORDERS[order])

    async def reset(self, request: Request, form: Form) -> Response:
        """Forget the offsets of a connector."""
        cluster, name = self._named(request)
        confirmed(form, name)
        run = cluster.set_offsets(name, None)
        return await self._do(request, cluster, name, "RESET_CONNECTOR", run, "Its offsets are forgotten.")

    async def move(self, request: Request, form: Form) -> Response:
        """Give a stopped connector other offsets."""
        cluster, name = self._named(request)
        confirmed(form, name)
        try:
            offsets = json.loads(form.get("offsets", ""))
        except (ValueError, RecursionError) as wrong:
            raise HTTPException(400, f"Nothing was done: the offsets are no JSON: {wrong}.") from None
        if not isinstance(offsets, list) or not all(isinstance(each, dict) for each in offsets):
            raise HTTPException(400, "Nothing was done: offsets are a list of objects with partition and offset.")
        run = cluster.set_offsets(name, offsets)
        return await self._do(request, cluster, name, "ALTER_CONNECTOR_OFFSETS", run, "Its offsets were changed.")

    async def delete(self, request: Request, form: Form) -> Response:
        """Delete a connector."""
        cluster, name = self._named(request)
        confirmed(form, name)
        run = cluster.delete(name)
        return await self._do(request, cluster, name, "DELETE_CONNECTOR", run, f"{name} was deleted.", "/connectors")

    async def _do(
        self,
        request: Request,
        cluster: ConnectCluster,
        name: str,
        api: str,
        run: Any,
        sentence: str,
        then: str | None = None,
    ) -> Response:
        async def order() -> None:
            try:
                await run
            finally:
                cluster.shared.forget()

        change = Change(api, "CONNECTOR", name, (("worker", cluster.url),))
        there = f"/connectors/{cluster.number}/{quote(name, safe='')}" if then is None else then
        try:
            return await self.change(request, change, order, sentence, there)
        finally:
            run.close()

    # -- paths -------------------------------------------------------------------------------------------------------

    def _cluster(self, request: Request) -> ConnectCluster:
        number: int = request.path_params["cluster"]
        if number >= len(self._clusters):
            raise HTTPException(404, f"The console knows no Connect cluster {number}.")
        return self._clusters[number]

    def _named(self, request: Request) -> tuple[ConnectCluster, str]:
        return self._cluster(request), request.path_params["name"]


async def _found(asked: Any) -> Any:
    try:
        return await asked
    except WorkerProblem as problem:
        if problem.status == NOT_THERE:
            raise HTTPException(404, str(problem)) from None
        raise
