"""`ottla pipeline diff`: the outputs of two runs, beside each other."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.cli.brokers.client import Connection, client_log, connection_options
from ottla.cli.pipeline.diff_report import DiffReport
from ottla.cli.pipeline.options import home_option, needs_spark
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import json_option, note, print_json
from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import RUNNING, RunRecord, find_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipeline.context import RunContext
    from ottla.pipeline.diff import Difference, Selection
    from ottla.pipeline.sinks.base import Sink


def _finite(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number by which others may differ")
    return value


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--flow", "flows", metavar="NAME", multiple=True, help="Only the output of this flow. May be repeated.")
@click.option(
    "--key",
    metavar="COLUMN,...",
    help="What makes rows the same. [default: the record's key in topics, else all columns]",
)
@click.option("--columns", metavar="COLUMN,...", help="Compare only these columns, and those of --key.")
@click.option("--ignore", metavar="COLUMN,...", help="Do not compare these columns.")
@click.option(
    "--tolerance",
    metavar="NUMBER",
    type=click.FloatRange(min=0),
    callback=_finite,
    default=0.0,
    help="Numbers that differ by no more are the same. [default: 0]",
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(0), default=10, help="Show so many differences of each. [default: 10]"
)
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write a page, too.")
@json_option
@home_option
@connection_options
def command(
    connection: Connection,
    a: str,
    b: str,
    flows: tuple[str, ...],
    key: str | None,
    columns: str | None,
    ignore: str | None,
    tolerance: float,
    limit: int,
    html: Path | None,
    as_json: bool,
    home: Path,
) -> int:
    """Compare what the runs A and B have written, flow by flow: rows in one alone, and rows of one key that differ.

    Records of topics are compared by their keys; of topics that are updated or compacted, the newest of each key. With
    --key, --columns or --ignore, the columns of a record are the fields of its JSON object.
    Exits with 0 if everything is equal, with 1 if not.
    """
    needs_spark()
    runs = (find_run(home, a).read(), find_run(home, b).read())
    for record in runs:
        if record.state == RUNNING:
            note(f"{record.name!r} is running: what it writes meanwhile may be seen or not")
    outputs = tuple(_outputs(record) for record in runs)
    common = _common(runs, outputs, flows)

    from ottla.pipeline import diff

    selection = diff.Selection(*map(_parts, (key, columns, ignore)))
    found: dict[str, Difference] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-diff-") as scratch, _spark(Path(scratch)) as spark:
        for flow in common:
            pairs = [(record, each[flow]) for record, each in zip(runs, outputs, strict=True)]
            newest = any(_is_updated(connection, record, output) for record, output in pairs)
            left, right = (
                _rows(output, _context(spark, connection, record, home), newest, selection) for record, output in pairs
            )
            found[flow] = diff.compare(left, right, limit, tolerance=tolerance)
    report = DiffReport(runs[0].name, runs[1].name, found)
    if html is not None:
        html.write_text(report.html(), encoding="utf-8")
    if as_json:
        print_json(report.json())
    else:
        report.show()
    return exits.OK if all(each.is_equal for each in found.values()) else exits.FAILED


def _parts(listed: str | None) -> list[str]:
    return [part.strip() for part in (listed or "").split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class _Output:
    """Where a flow of a run writes, `topic` being the name if it is one."""

    sink: "Sink"
    mode: str
    topic: str | None


def _outputs(record: RunRecord) -> dict[str, _Output]:
    """Everything that a run writes, by flow; late rows by `<flow>.late`, what is rejected by `dead-letters`."""
    from ottla.pipeline.inputs import Topic
    from ottla.pipeline.job import CORRECT
    from ottla.pipeline.job_file import load_job

    job = load_job(Path(record.job_file), remembered=record.parameters)
    sinks: dict[str, tuple[Sink, str]] = {}
    for name, flow in job.flows.items():
        sinks[name] = (flow.to, "update" if flow.late == CORRECT else flow.mode)
        if flow.late_topic is not None:
            sinks[f"{name}.late"] = (flow.late_topic, "append")
    if any(name.endswith(".dead-letters") for name in record.flows):
        sinks["dead-letters"] = (job.dead_letters, "append")
    outputs: dict[str, _Output] = {}
    for name, (sink, mode) in sinks.items():
        here = sink.renamed(record.suffix) if record.suffix else sink
        outputs[name] = _Output(here, mode, here.name if isinstance(here, Topic) else None)
    return outputs


def _common(
    runs: tuple[RunRecord, RunRecord], outputs: tuple[Mapping[str, _Output], ...], chosen: tuple[str, ...]
) -> list[str]:
    """The flows that both have. Raises PipelineError if there are none, or if a requested one is missing."""
    a, b = outputs
    both = [name for name in a if name in b]
    for name in chosen:
        if name not in both:
            raise PipelineError(f"no flow {name!r} in both runs{did_you_mean_or_list(name, both)}")
    for record, here, there in ((runs[0], a, b), (runs[1], b, a)):
        for name in here:
            if name not in there and not chosen:
                note(f"only {record.name!r} has {name!r} ({here[name].sink.describe()})")
    if not both:
        raise PipelineError(f"{runs[0].name!r} and {runs[1].name!r} have no flow in common")
    for name in both:
        if a[name].sink == b[name].sink:
            raise PipelineError(
                f"flow {name!r} of both runs writes the same {a[name].sink.describe()}: there is nothing to compare"
            )
    return [name for name in both if not chosen or name in chosen]


def _rows(output: _Output, context: "RunContext", newest: bool, selection: "Selection") -> "DataFrame":
    from ottla.pipeline import diff

    read = output.sink.read(context)
    if output.topic is None:
        return diff.rows(read, selection)
    return diff.records(read, newest=newest, selection=selection)


def _is_updated(connection: Connection, record: RunRecord, output: _Output) -> bool:
    """Whether a newer record takes the place of an older one with the same key."""
    if output.topic is None or output.mode != "append":
        return output.mode != "append"
    client = connection.client_configuration(logger=client_log.logger)
    admin = AdminClient({**client, "bootstrap.servers": record.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, output.topic)
    settings = connection.wait(admin.describe_configs([resource], request_timeout=connection.timeout_s)[resource])
    return "compact" in str(settings["cleanup.policy"].value)


def _context(spark: "SparkSession", connection: Connection, record: RunRecord, home: Path) -> "RunContext":
    from ottla.pipeline.context import RunContext

    return RunContext(
        spark=spark,
        bootstrap=record.bootstrap,
        job=record.job,
        run=record.name,
        home=find_run(home, record.name).path,
        directory=Path(record.job_file).parent,
        client={f"kafka.{name}": value for name, value in connection.properties.items()},
        suffix=record.suffix,
    )


@contextmanager
def _spark(scratch: Path) -> "Iterator[SparkSession]":
    from ottla.pipeline import session

    context = session.launch("diff", scratch / "spark")
    try:
        yield session.open_session()
    finally:
        session.stop(context)
