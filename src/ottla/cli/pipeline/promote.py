"""`ottla pipeline promote`: a replay takes the place of the run that it replays."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.pipeline.stop import stop
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import columns_of, confirm, json_option, note, plural, print_json, print_rows, yes_option
from ottla.pipeline.promote import Behind, behind, check, promote, reached
from ottla.waiting import tries

_LOOK_EVERY_S: Final = 0.5
_COLUMNS: Final = columns_of("flow before after=NOW")


@click.command("promote")
@click.argument("replay", metavar="NEW")
@click.option("--even-behind", is_flag=True, help="Also if the replay has not read as far as the run.")
@click.option(
    "--within",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=120.0,
    help="How long to wait until both have stopped. [default: 120]",
)
@json_option
@yes_option
@home_option
def command(replay: str, even_behind: bool, within: float, as_json: bool, yes: bool, home: Path) -> None:
    """Have the replay NEW take the place of the run that it replays.

    Both are stopped. From then on the run goes on from the replay's checkpoints and writes the replay's outputs; start
    it again under its own name. What it wrote before stays as it is, under the old names: topics cannot be renamed, so
    readers have to be pointed to the new ones.
    """
    first, new = check(home, replay)
    is_running = new.process_id() is not None
    if not is_running and not even_behind:
        _refuse(behind(first, new), replay, first.name)
    confirm(f"Stop {first.name!r} and have {replay!r} take its place?", yes=yes)
    was_running = first.process_id() is not None
    if is_running and not even_behind:
        # the first goes on until the replay has come to where it is now, so that a refusal stops nothing
        goal = reached(first)
        _refuse(_wait(lambda: behind(first, new, goal), within), replay, first.name)
    try:
        stop(first, within_s=within)
        if is_running:
            # the first does not move any more: the little that it has read since, the replay reads in a moment
            if not even_behind:
                _refuse(_wait(lambda: behind(first, new), within), replay, first.name)
            stop(new, within_s=within)
        if not even_behind:
            _refuse(behind(first, new), replay, first.name)
    except CommandFailed as problem:
        if not was_running or first.process_id() is not None:
            raise
        raise CommandFailed(f"{problem}. {first.name!r} was stopped for this: start it again now") from None
    done = promote(home, replay)
    rows = [{"flow": flow, "before": before, "after": after} for flow, (before, after) in done.outputs.items()]
    if as_json:
        print_json({"run": done.name, "replay": done.replay, "outputs": rows})
        return
    print_rows(rows, _COLUMNS)
    note(
        f"{done.name!r} goes on where {done.replay!r} stopped: start it again with `ottla pipeline run`, point readers "
        "to the new outputs, then delete the old ones"
    )


def _wait(look: Callable[[], list[Behind]], within_s: float) -> list[Behind]:
    """Until nothing is behind, or for so long: what is."""
    found: list[Behind] = []
    for _ in tries(within_s, every_s=_LOOK_EVERY_S):
        found = look()
        if not found:
            break
    return found


def _refuse(found: list[Behind], replay: str, first: str) -> None:
    if not found:
        return
    worst = max(found, key=lambda each: each.records)
    missing = plural(worst.records, "record")
    raise CommandFailed(
        f"{replay!r} has not caught up with {first!r}: flow {worst.flow!r} is {missing} of topic {worst.topic!r} "
        "behind; run it until it has, or add --even-behind"
    )
