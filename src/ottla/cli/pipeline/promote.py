"""`ottla pipeline promote`: a replay takes the place of the run that it replays."""

from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.terminal.output import columns_of, confirm, json_option, note, print_json, print_rows, yes_option
from ottla.pipeline.promote import check, refuse_behind, take_place

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
    if new.process_id() is None and not even_behind:
        refuse_behind(first, new)
    confirm(f"Stop {first.name!r} and have {replay!r} take its place?", yes=yes)
    done = take_place(home, replay, within_s=within, even_behind=even_behind)
    rows = [{"flow": flow, "before": before, "after": after} for flow, (before, after) in done.outputs.items()]
    if as_json:
        print_json({"run": done.name, "replay": done.replay, "outputs": rows})
        return
    print_rows(rows, _COLUMNS)
    note(
        f"{done.name!r} goes on where {done.replay!r} stopped: start it again with `ottla pipeline run`, point readers "
        "to the new outputs, then delete the old ones"
    )
