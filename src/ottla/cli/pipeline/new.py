"""`ottla pipeline new`: a job file that works, with a golden test."""

import shlex
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import click

from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.pipeline.new_job import TOPIC, job_files


@click.command("new")
@click.argument("name")
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("jobs"),
    help="Where the job file goes. [default: jobs]",
)
def command(name: str, directory: Path) -> None:
    """Write a job with a view that checks rows, a flow over windows, and a golden test of both.

    The job is DIR/NAME.py, its test a directory in DIR/tests/NAME. Nothing that exists is overwritten.
    """
    files = {directory / path: text for path, text in job_files(name).items()}
    job_file, records, *_ = files
    if name in sys.stdlib_module_names or name in packages_distributions() or name == "ottla":
        raise CommandFailed(f"{job_file} would hide the Python module {name!r} from the job: choose another name")
    for path in (job_file, directory / "tests" / name):
        if path.exists():
            raise CommandFailed(f"{path} exists already: choose another name, or another --directory")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        click.echo(str(path))
    job, test = shlex.quote(str(job_file)), shlex.quote(str(records))
    note(
        f"""
Next:
  ottla pipeline test {job}         # runs it on a broker of its own; --update accepts a new output
  ottla topic create {TOPIC}
  ottla produce {TOPIC} --json {test}
  ottla pipeline run {job} --once --close-windows --until now
  ottla consume {name}-hourly --from-beginning --exit-at-end"""
    )
