"""Options shared by the commands for jobs: the run store, the brokers of a job, and the required packages."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.brokers.client import Connection
from ottla.cli.terminal.exits import CommandFailed
from ottla.pipeline.run_store import find_home

if TYPE_CHECKING:
    from ottla.pipeline.job import Job


def _home(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Path:
    return find_home(value)


home_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--home",
    metavar="DIR",
    callback=_home,
    help="Where runs and their checkpoints are kept. [env: OTTLA_HOME; default: ~/.ottla]",
)


param_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of the job (Job.param). May be repeated.",
)


newest_tables_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--newest-tables",
    is_flag=True,
    help="Read the newest snapshot of tables with a history, and keep to it. [default: the one that the run has]",
)


def needs_spark() -> None:
    """Raises CommandFailed, naming the package to install, where PySpark or a package that it needs is missing."""
    for module in ("pyspark", "pyarrow", "pandas"):
        if find_spec(module) is None:
            raise CommandFailed(f"jobs need {module}: in a checkout of Ottla, pip install '.[pipeline]'")


def job_parameters(given: Sequence[str]) -> dict[str, str]:
    """The options --param as a dictionary. Raises click.BadParameter."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--param")
        found[name] = value
    return found


def load_job_for(
    connection: Connection,
    file: Path,
    parameters: Mapping[str, str],
    remembered: Mapping[str, str],
    *,
    bootstrap: str | None = None,
) -> "Job":
    """Load a job file and reach its brokers; sets them in `connection`.

    They are those of the option --bootstrap, else `bootstrap` (a profile's), else OTTLA_BOOTSTRAP's, else the job's.
    For `parameters` and `remembered` see `load_job`. Raises PipelineError for the file, CommandFailed if no broker
    answers.
    """
    from ottla.pipeline.job_file import load_job

    job = load_job(file, parameters, remembered)
    context = click.get_current_context()
    given = context.get_parameter_source("bootstrap")
    if bootstrap is not None and given is not click.core.ParameterSource.COMMANDLINE:
        connection.bootstrap = bootstrap
    elif given is click.core.ParameterSource.DEFAULT and job.bootstrap is not None:
        connection.bootstrap = job.bootstrap
    connection.reach()
    return job
