"""`ottla connect demo`: a database through topics and Spark into another one, while everything is killed once."""

from pathlib import Path

import click

from ottla.cli.pipeline.options import needs_spark
from ottla.cli.terminal.exits import CommandFailed


@click.command()
@click.option(
    "--changes",
    metavar="N",
    type=click.IntRange(100, 1_000_000),
    default=16_000,
    show_default=True,
    help="Rows inserted, updated and deleted in the shop.",
)
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(10, 10_000),
    default=400,
    show_default=True,
    help="So many of them a second.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where everything is kept afterwards. [default: nowhere]",
)
def demo(changes: int, rate: int, directory: Path | None) -> None:
    """Keep a table of one database equal to a query over another one, kill everything halfway, and compare.

    A shop in PostgreSQL is changed all the while. Its changes are captured to topics, joined and summed up by a job on
    Spark, and written to the table of another database. Halfway PostgreSQL, the broker, the worker and Spark are killed
    (SIGKILL) and started again. At the end the table has to equal the query, row for row. Needs PostgreSQL and Java on
    this machine; starts servers of its own, on free ports of 127.0.0.1. About two minutes on two cores.
    """
    needs_spark()
    from ottla.connect.demo.errors import DemoError
    from ottla.connect.demo.story import Options, play
    from ottla.pipeline.demo.show import screen

    try:
        play(Options(changes, rate, directory), screen())
    except DemoError as problem:
        raise CommandFailed(str(problem)) from None
