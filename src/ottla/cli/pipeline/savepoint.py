"""`ottla pipeline savepoint`: a copy of a stopped run's checkpoints, from which it can go on elsewhere or later."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import home_option
from ottla.cli.terminal.output import columns_of, json_option, note, plural, print_json, print_rows, progress_wanted
from ottla.cli.terminal.progress import Progress
from ottla.pipeline.progress import offsets_of
from ottla.pipeline.run_store import find_run
from ottla.pipeline.savepoint import Manifest, take

_COLUMNS: Final = columns_of("flow batch=LAST-BATCH# records=READ-UP-TO#")


@click.command("savepoint")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
@home_option
def command(name: str, path: Path, as_json: bool, home: Path) -> None:
    """Copy the checkpoints of the stopped run NAME into the new directory PATH.

    `ottla pipeline run JOB.PY --from-savepoint PATH` goes on from there. Outputs are not copied: save them at the same
    time, if they are to be set back as well.
    """
    run = find_run(home, name)
    path = path.absolute()
    with ExitStack() as drawing:
        drawn: list[Progress] = []

        def show(done: int, total: int) -> None:
            if not drawn:  # the total is known from here on
                wanted = progress_wanted() and not as_json
                drawn.append(drawing.enter_context(Progress("copied", "bytes", total=total, wanted=wanted)))
            drawn[0].show(done, done)

        manifest = take(run, path, show)
    if as_json:
        print_json(_as_json(path, manifest))
        return
    print_rows(
        [
            {"flow": name, "batch": flow.done if flow.done >= 0 else None, "records": _read_up_to(flow.read)}
            for name, flow in manifest.flows.items()
        ],
        _COLUMNS,
    )
    note(f"{path}: {plural(len(manifest.files), 'file')}, {manifest.size_bytes:,} bytes")


def _as_json(path: Path, manifest: Manifest) -> dict[str, object]:
    return {
        "path": str(path),
        "run": manifest.run,
        "job": manifest.job,
        "taken_at": manifest.taken_at,
        "ottla": manifest.ottla,
        "spark": manifest.spark,
        "files": len(manifest.files),
        "size_bytes": manifest.size_bytes,
        "flows": {
            name: {"query_id": flow.query_id, "batch": flow.done, "begun": flow.begun, "read": list(flow.read)}
            for name, flow in manifest.flows.items()
        },
    }


def _read_up_to(sources: tuple[object, ...]) -> int | None:
    """The sum of the offsets in topics."""
    found = [offset for source in sources for offset in offsets_of(source).values()]
    return sum(found) if found else None
