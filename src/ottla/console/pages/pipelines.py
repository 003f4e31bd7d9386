"""Runs of jobs: how far they are, their dead letters, replays beside their originals; redrive and promotion."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote

from confluent_kafka import KafkaException
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.errors import ClientError
from ottla.connect.runtime.threads import in_thread
from ottla.console.access.audit import Change, Sender
from ottla.console.access.masks import MASKED
from ottla.console.access.roles import Role
from ottla.console.diffs import Comparison, Comparisons
from ottla.console.pages.actions import ActionPages, Form, confirmed, sender
from ottla.console.pages.base import Entry, Shell
from ottla.console.runs import LOOKED_AT_S, Letters, Redrives, Redriving, RunPage, Runs, plan_of
from ottla.pipeline.errors import PipelineError, RunNotFoundError
from ottla.pipeline.promote import take_place
from ottla.pipeline.redrive import Wanted
from ottla.tasks import supervised

LETTERS_EVERY_S: Final = 2.0
PROMOTION_S: Final = 60.0
"""For each wait of a promotion: that the replay catches up, that either run stops."""
NO_PROMOTION: Final = (
    "Without a login this console promotes nothing, unless its home was named: `ottla console --pipelines DIR`. "
    "`ottla pipeline promote` does it, too."
)


class Refused(ClientError):
    """A job's refusal, for pages that know those of brokers."""


class PipelinePages(ActionPages):
    """Runs of jobs in the console's home."""

    NAVIGATION: ClassVar[Sequence[Entry]] = (Entry("/pipelines", "Pipelines", "p"),)

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        home = shell.access.settings.home
        self._runs = None if home is None else Runs(home)
        self._redrives = Redrives()
        self._comparisons = None if home is None else Comparisons(home)

    def routes(self) -> Sequence[BaseRoute]:
        """The addresses of the pages."""
        return [
            Route("/pipelines", self.pipelines),
            Route("/pipelines/{run}", self.run),
            Route("/pipelines/{run}/letters/{topic}", self.letters),
            self.action("/redrive-letters/{run}/{topic}", self.redrive, Role.EDITOR),
            self.action("/promote-replay/{run}", self.promote, Role.ADMIN),
            self.action("/compare-runs/{run}/{replay}", self.compare, Role.ADMIN),
        ]

    # -- pages -------------------------------------------------------------------------------------------------------

    async def pipelines(self, request: Request) -> Response:
        """All runs, and queries of Spark that no run here has."""
        runs, view = self._known(), self.view(request)

        async def fragment() -> dict[str, Any]:
            try:
                queries = await runs.queries(view)
            except (ClientError, KafkaException, TimeoutError):
                queries = None
            return {"runs": await runs.listed(), "queries": queries, "home": runs.home}

        return await self.live_page(request, "pipelines.html", fragment)

    async def run(self, request: Request) -> Response:
        """One run."""
        runs = self._known()

        viewer = self.viewer(request)

        async def fragment() -> dict[str, Any]:
            run = await self._run(runs, request.path_params["run"])
            return {"run": run, "comparisons": self._compared(run) if viewer.may(Role.ADMIN) else {}}

        promotes = self._shell.access.settings.promotes and viewer.may(Role.ADMIN)
        return await self.live_page(request, "pipeline.html", fragment, promotes=promotes)

    async def letters(self, request: Request) -> Response:
        """Dead letters of a run, by reason."""
        runs, view, viewer = self._known(), self.view(request), self.viewer(request)
        run, topic = request.path_params["run"], request.path_params["topic"]
        await self._check_letters(runs, run, topic)

        async def fragment() -> dict[str, Any]:
            try:
                letters = await runs.letters(view, topic)
            except PipelineError as problem:
                raise HTTPException(404, f"The letters are not there: {problem}.") from None
            if viewer.masks:
                letters = _masked(letters)
            return {
                "run": run,
                "letters": letters,
                "redriving": self._redrives.of(topic),
                "counted_s": LOOKED_AT_S,
            }

        return await self.live_page(request, "letters.html", fragment, LETTERS_EVERY_S)

    # -- actions -----------------------------------------------------------------------------------------------------

    async def redrive(self, request: Request, form: Form) -> Response:
        """Send dead letters back to the topics that they came from."""
        runs, client = self._known(), self.view(request).client_properties
        run, topic = request.path_params["run"], request.path_params["topic"]
        await self._check_letters(runs, run, topic)
        reason, leave_late = form.get("reason"), form.get("leave_late") == "1"

        async def begin() -> None:
            plan = await asyncio.to_thread(plan_of, runs.home, topic, Wanted(reason), leave_late=leave_late)
            try:
                begun = self._redrives.begin(client, plan)
            except PipelineError as problem:
                raise Refused(str(problem)) from None
            loop = asyncio.get_running_loop()
            supervised(loop, self._note_end(sender(request), begun), f"audit of the redrive of {topic}")

        return await self.change(
            request,
            Change("REDRIVE", "TOPIC", topic, (("reason", reason or ""), ("leave_late", str(leave_late)))),
            begin,
            "The redrive has begun.",
            f"/pipelines/{quote(run, safe='')}/letters/{quote(topic, safe='')}",
        )

    async def _note_end(self, who: Sender, begun: Redriving) -> None:
        """Write the outcome of a redrive into the audit log, when it has one."""
        assert begun.end is not None
        await asyncio.wrap_future(begun.end)
        change = Change("REDRIVE_END", "TOPIC", begun.topic, (("letters", begun.sent),))
        await self._shell.access.settings.trail.ended(who, change, begun.problem or None)

    async def promote(self, request: Request, form: Form) -> Response:
        """Have a replay take the place of the run that it replays."""
        runs, replay = self._known(), request.path_params["run"]
        if not self._shell.access.settings.promotes:
            raise HTTPException(403, NO_PROMOTION)
        original = (await self._run(runs, replay)).record.replays or ""
        confirmed(form, original)

        async def take() -> None:
            try:
                place = functools.partial(take_place, runs.home, replay, within_s=PROMOTION_S)
                await asyncio.wrap_future(in_thread(f"promotion of {replay}", place))
            except (PipelineError, OSError) as problem:
                raise Refused(str(problem)) from None
            finally:
                runs.forget()

        return await self.change(
            request,
            Change("PROMOTE", "RUN", original, (("replay", replay),)),
            take,
            f"{original} goes on where {replay} stopped: start it again with `ottla pipeline run`, and point readers "
            "to the new outputs.",
            f"/pipelines/{quote(original, safe='')}",
        )

    async def compare(self, request: Request, form: Form) -> Response:
        """Compare the outputs of a run and its replay, row by row."""
        runs, client = self._known(), self.view(request).client_properties
        name, replay = request.path_params["run"], request.path_params["replay"]
        run = await self._run(runs, name)
        if not any((each.original, each.replay) == (name, replay) for each in run.beside):
            raise HTTPException(404, f"{replay} is no replay of {name}.")
        assert self._comparisons is not None
        comparisons = self._comparisons

        async def begin() -> None:
            try:
                comparisons.begin(name, replay, client)
            except PipelineError as problem:
                raise Refused(str(problem)) from None

        return await self.change(
            request,
            Change("COMPARE", "RUN", name, (("replay", replay),)),
            begin,
            "The comparison has begun: it takes a minute or more.",
            f"/pipelines/{quote(name, safe='')}",
        )

    def _compared(self, run: RunPage) -> dict[str, Comparison]:
        """The comparisons of a run's page, by the replay."""
        assert self._comparisons is not None
        found = {each.replay: self._comparisons.of(each.original, each.replay) for each in run.beside}
        return {replay: each for replay, each in found.items() if each is not None}

    # -- runs --------------------------------------------------------------------------------------------------------

    def _known(self) -> Runs:
        if self._runs is None:
            raise HTTPException(404, "This console shows no runs: `ottla console --pipelines DIR` names their home.")
        return self._runs

    async def _run(self, runs: Runs, name: str) -> RunPage:
        try:
            return await runs.run(name)
        except RunNotFoundError as absent:
            raise HTTPException(404, f"{absent}.") from None
        except (PipelineError, OSError) as problem:
            raise HTTPException(502, f"The run cannot be read: {problem}.") from None

    async def _check_letters(self, runs: Runs, run: str, topic: str) -> None:
        if topic not in (await self._run(runs, run)).letters:
            raise HTTPException(404, f"{run} writes no dead letters to a topic {topic!r}.")


def _masked(letters: Letters) -> Letters:
    """Reasons may name values."""
    return letters._replace(counts=[each._replace(reason=MASKED) for each in letters.counts])
