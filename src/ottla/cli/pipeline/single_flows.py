"""Starting and stopping single flows of a run that goes on: what the verbs start, stop and restart share."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.pipeline import names
from ottla.pipeline.errors import NotRunningError
from ottla.pipeline.flow_requests import Request, send
from ottla.pipeline.run_store import FAILED, LEFT_OUT, RUNNING, WAITING, RunDirectory, state_of
from ottla.waiting import wait_until

_LOOK_EVERY_S: Final = 0.1
_NOT_AS_ASKED: Final = {
    Request.START: (FAILED, LEFT_OUT),
    Request.STOP: (RUNNING, WAITING),
    Request.RESTART: (FAILED, LEFT_OUT),
}
"""States of a flow in which a request has not been carried out, though it was taken: the run has begun anew."""

flow_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--flow", "flows", metavar="FLOW", multiple=True, required=True, help="The flow. May be repeated."
)
within_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--within",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=120.0,
    help="How long to wait until that is done. [default: 120]",
)


def ask(directory: RunDirectory, request: Request, flows: Sequence[str], *, within_s: float) -> None:
    """Have the process of a run start or stop these flows, wait until it has, and print what has become of them.

    Raises NotRunningError, or CommandFailed for a flow that the run does not have or that is not done in time.
    """
    process = directory.process_id()
    record = directory.read()
    if process is None:
        raise NotRunningError(
            f"{directory.name!r} is not running: it is {state_of(record)}; "
            f"run it with `ottla pipeline run {record.job_file}`"
        )
    if not record.flows:
        raise CommandFailed(f"{directory.name!r} is starting, and its flows are not known yet: try again in a moment")
    for flow in flows:
        if flow not in record.flows:
            hint = names.did_you_mean(flow, record.flows, otherwise=f"; it has {', '.join(record.flows)}")
            raise CommandFailed(f"{directory.name!r} has no flow {flow!r}{hint}")
        if record.flows[flow].state == LEFT_OUT:
            raise CommandFailed(
                f"{directory.name!r} was started without the flow {flow!r}: stop it, and run it with that flow"
            )
    files = [send(directory, request, flow) for flow in flows]
    wait_until(
        lambda: directory.process_id() != process or not any(file.exists() for file in files),
        within_s,
        every_s=_LOOK_EVERY_S,
    )
    if directory.process_id() != process and any(file.exists() for file in files):
        raise CommandFailed(f"{directory.name!r} has ended meanwhile: see `ottla pipeline logs {directory.name}`")
    found = directory.read().flows
    for flow, file in zip(flows, files, strict=True):
        if file.exists():
            raise CommandFailed(f"{flow!r} is still in its micro-batch after {within_s:g} s; the request stands")
        about = found.get(flow)
        if about is None:
            raise CommandFailed(f"{directory.name!r} has no flow {flow!r} any longer")
        said = f"{flow!r} is {about.state}" + (f": {about.error}" if about.error else "")
        if about.state in _NOT_AS_ASKED[request]:
            raise CommandFailed(said)
        note(said)
