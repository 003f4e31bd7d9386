"""`ottla pipeline compact`: few large files for the many small ones that micro-batches leave."""

from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import home_option, needs_spark
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import columns_of, json_option, print_json, print_rows
from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.pipeline.run_store import find_run

_COLUMNS: Final = columns_of("flow output done")


@click.command("compact")
@click.argument("name")
@click.option("--flow", "flows", multiple=True, metavar="FLOW", help="Only this flow. May be repeated.")
@json_option
@home_option
def command(name: str, flows: tuple[str, ...], as_json: bool, home: Path) -> None:
    """Rewrite the small files of the tables that the run NAME writes. It may run meanwhile.

    Readers of Delta and Iceberg tables notice nothing. Readers of plain Parquet files should pause: for a moment they
    may
    miss rows, or fail on a file that was removed. Neither brokers nor Spark are needed.
    """
    needs_spark()
    from ottla.pipeline.job_file import load_job
    from ottla.pipeline.sinks import Compactable

    record = find_run(home, name).read()
    job_file = Path(record.job_file)
    job = load_job(job_file, remembered=record.parameters)
    outputs = {flow.name: flow.to.renamed(record.suffix) if record.suffix else flow.to for flow in job.flows.values()}
    for flow in flows:
        if flow not in outputs:
            raise CommandFailed(f"{name!r} has no flow {flow!r}{did_you_mean_or_list(flow, outputs)}")
    chosen = {flow: sink for flow, sink in outputs.items() if flow in flows or not flows}
    tables = {flow: sink for flow, sink in chosen.items() if isinstance(sink, Compactable)}
    if not tables:
        raise CommandFailed(f"{' and '.join(map(repr, chosen))} of {name!r} write no tables of files")
    rows = [
        {"flow": flow, "output": sink.describe(), "done": sink.compact(job_file.parent)}
        for flow, sink in tables.items()
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, _COLUMNS)
