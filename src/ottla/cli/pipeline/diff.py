"""`ottla pipeline diff`: the outputs of two runs, beside each other."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.pipeline.options import home_option, needs_spark
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import Column, Row, json_option, note, plural, print_json, print_rows
from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import RUNNING, RunRecord, find_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipeline.context import RunContext
    from ottla.pipeline.diff import Difference
    from ottla.pipeline.sinks.base import Sink

_SHOWN_WIDTH: Final = 200


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--flow", "flows", metavar="NAME", multiple=True, help="Only the output of this flow. May be repeated.")
@click.option(
    "--key", metavar="COLUMN,...", help="What makes rows of tables and files the same. [default: all columns]"
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(0), default=10, help="Show so many differences of each. [default: 10]"
)
@json_option
@home_option
@connection_options
def command(
    connection: Connection,
    a: str,
    b: str,
    flows: tuple[str, ...],
    key: str | None,
    limit: int,
    as_json: bool,
    home: Path,
) -> int:
    """Compare what the runs A and B have written, flow by flow: rows in one alone, and rows of one key that differ.

    Records of topics are compared by their keys; of topics that are updated or compacted, the newest of each key.
    Exits with 0 if everything is equal, with 1 if not.
    """
    needs_spark()
    runs = (find_run(home, a).read(), find_run(home, b).read())
    for record in runs:
        if record.state == RUNNING:
            note(f"{record.name!r} is running: what it writes meanwhile may be seen or not")
    outputs = tuple(_outputs(record) for record in runs)
    common = _common(runs, outputs, flows)
    columns = [part.strip() for part in (key or "").split(",") if part.strip()]

    from ottla.pipeline import diff

    found: dict[str, Difference] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-diff-") as scratch, _spark(Path(scratch)) as spark:
        for flow in common:
            pairs = [(record, each[flow]) for record, each in zip(runs, outputs, strict=True)]
            newest = any(_is_updated(connection, record, output) for record, output in pairs)
            left, right = (
                _rows(output, _context(spark, connection, record, home), newest, columns) for record, output in pairs
            )
            found[flow] = diff.compare(left, right, limit)
    _report(found, runs, as_json=as_json)
    return exits.OK if all(each.is_equal for each in found.values()) else exits.FAILED


@dataclass(frozen=True, slots=True)
class _Output:
    """Where a flow of a run writes, `topic` being the name if it is one."""

    sink: "Sink"
    mode: str
    topic: str | None


def _outputs(record: RunRecord) -> dict[str, _Output]:
    """Everything that a run writes, by flow; late rows by `<flow>.late`, what is rejected by `dead-letters`."""
    from ottla.pipeline.inputs import Topic
    from ottla.pipeline.job_file import load_job

    job = load_job(Path(record.job_file), remembered=record.parameters)
    sinks: dict[str, tuple[Sink, str]] = {}
    for name, flow in job.flows.items():
        sinks[name] = (flow.to, flow.mode)
        if flow.late is not None:
            sinks[f"{name}.late"] = (flow.late, "append")
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


def _rows(output: _Output, context: "RunContext", newest: bool, key: list[str]) -> "DataFrame":
    from ottla.pipeline import diff

    read = output.sink.read(context)
    return diff.rows(read, key) if output.topic is None else diff.records(read, newest=newest)


def _is_updated(connection: Connection, record: RunRecord, output: _Output) -> bool:
    """Whether a newer record takes the place of an older one with the same key."""
    if output.topic is None or output.mode != "append":
        return output.mode != "append"
    admin = AdminClient({**connection.client_configuration(), "bootstrap.servers": record.bootstrap})
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


def _report(found: "Mapping[str, Difference]", runs: tuple[RunRecord, RunRecord], *, as_json: bool) -> None:
    a, b = (record.name for record in runs)
    if as_json:
        print_json({"a": a, "b": b, "flows": {flow: asdict(each) for flow, each in found.items()}})
        return
    columns = (
        Column("flow", "FLOW"),
        Column("equal", "EQUAL", figures=True),
        Column("only_in_a", f"ONLY IN {a}", figures=True),
        Column("only_in_b", f"ONLY IN {b}", figures=True),
        Column("differing", "DIFFERENT", figures=True),
    )
    rows: list[Row] = [{"flow": flow, **asdict(each)} for flow, each in found.items()]
    print_rows(rows, columns)
    for flow, each in found.items():
        if each.is_equal:
            continue
        click.echo(f"\n{flow}, - {a}, + {b}:")
        for example in each.examples:
            for sign, lines in (("-", example.in_a), ("+", example.in_b)):
                for line in lines:
                    shown = line if len(line) <= _SHOWN_WIDTH else line[: _SHOWN_WIDTH - 3] + "..."
                    click.echo(f"{sign} {shown}")
    different = sum(not each.is_equal for each in found.values())
    note("everything is equal" if not different else f"{different} of {plural(len(found), 'output')} differ")
