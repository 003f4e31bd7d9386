"""`ottla connect apply`: create and change connectors to match files."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from ottla.cli.connect.client import Rest, RestRefused, rest_option
from ottla.cli.connect.files import named_configs
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import Row, columns_of, complain, json_option, print_rows
from ottla.waiting import tries

_CONFLICT: Final = 409
_REBALANCE_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.2
_STEADY_S: Final = 1.0
"""What fails at its first step runs for a moment."""
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--wait", "wait_s", metavar="SECONDS", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="How long the tasks may take to run; 0: do not look.")  # fmt: skip
@json_option
@rest_option
def apply(rest: Rest, files: tuple[Path, ...], wait_s: float, as_json: bool) -> int:
    """Create the connectors that these files describe, or change existing ones; then check that their tasks run.

    A file is JSON, TOML or properties: the settings of a connector, with `name` and `connector.class`. A connector
    whose settings match its file is left alone. ${env:NAME} and ${file:PATH:KEY} are filled in by the workers, and
    stored as they are.
    """
    wanted = named_configs(files)
    rows: list[Row] = []
    failed = False
    for name, config in wanted.items():
        try:
            done = put(rest, name, config)
        except RestRefused as refused:
            complain(f"{name}: {refused}")
            rows.append({"name": name, "done": "refused", "state": None})
            failed = True
            continue
        state = _settled(rest, name, wait_s) if wait_s else None
        if state == "FAILED":
            failed = True
            complain(f"{name}: {_reason(rest.connector(name, '/status'))}")
        rows.append({"name": name, "done": done, "state": state})
    print_rows(rows, columns_of("name done state"), as_json=as_json)
    return exits.FAILED if failed else exits.OK


def put(rest: Rest, name: str, config: Mapping[str, str]) -> str:
    """Create or update a connector; returns `created`, `changed` or `unchanged`. Raises CommandFailed."""
    try:
        before = rest.ask("GET", f"/connectors/{quote(name, safe='')}/config")
    except RestRefused as refused:
        if refused.status != 404:
            raise
        before = None
    if before == dict(config):
        return "unchanged"
    for _ in tries(_REBALANCE_S, every_s=_LOOK_EVERY_S):
        try:
            rest.connector(name, "/config", method="PUT", body=dict(config))
        except RestRefused as refused:
            if refused.status != _CONFLICT:
                raise
            problem = refused
        else:
            return "created" if before is None else "changed"
    raise problem


def _settled(rest: Rest, name: str, wait_s: float) -> str:
    """The state of the connector and all its tasks, once they agree or one has failed, or when time is up."""
    since: float | None = None
    states: set[str] = set()
    for _ in tries(wait_s, every_s=_LOOK_EVERY_S):
        try:
            status = rest.connector(name, "/status")
            states = {status["connector"]["state"], *(each["state"] for each in status["tasks"])}
            if not status["tasks"] and "FAILED" not in states:
                states.add("UNASSIGNED")
        except RestRefused:
            states = {"UNASSIGNED"}
        if "FAILED" in states:
            return "FAILED"
        if states not in ({"RUNNING"}, {"PAUSED"}):
            since = None
        elif since is None:
            since = time.monotonic()
        elif time.monotonic() - since > _STEADY_S:
            return str(states.pop())
    return "UNASSIGNED" if since is None else str(states.pop())


def _reason(status: Mapping[str, Any]) -> str:
    for each in (status["connector"], *status["tasks"]):
        if each["state"] == "FAILED":
            return str(each.get("trace", "failed")).splitlines()[0]
    return "failed"
