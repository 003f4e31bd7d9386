"""`ottla pipeline test`: a job against golden files, on a broker of its own."""

import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.pipeline.junit import CaseResult, to_xml
from ottla.cli.pipeline.options import job_parameters, needs_spark, param_option
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import note, plural
from ottla.cli.terminal.record_lines import BROKER_TIME, BadLine, JsonInput
from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.pipeline.demo.broker import serve
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.golden import Case, Comparison, GoldenError, Line, cases_of, compare, read_lines, to_text
from ottla.pipeline.golden_run import InputRecord, Trial, outputs_of
from ottla.pipeline.job import Job
from ottla.pipeline.job_file import load_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command()
@click.argument("job_file", metavar="JOB", type=click.Path(path_type=Path))
@click.argument("cases", metavar="[CASE]...", nargs=-1)
@param_option
@click.option("--update", is_flag=True, help="Write the actual output as the new expected output.")
@click.option(
    "--junit", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write a report in JUnit's XML."
)
@click.option(
    "--broker", metavar="HOST:PORT", help="Use this broker, with topics of other names. [default: an own one]"
)
def command(
    job_file: Path,
    cases: tuple[str, ...],
    params: tuple[str, ...],
    update: bool,
    junit: Path | None,
    broker: str | None,
) -> int:
    """Run JOB over the inputs of its golden tests and compare what comes out with what is expected.

    Each CASE is a directory tests/<job>/<case> beside the job file, with input.<topic>.jsonl for each topic to read and
    expected.<output>.jsonl for each topic written (or flow, if it writes to something else). Windows of event time are
    closed at the end. An output without a file is expected to be empty. No CASE means all of them.
    """
    needs_spark()
    if update and junit is not None:
        raise click.UsageError("--junit reports comparisons, and --update makes none")
    with _reporting(junit, job_file.stem) as results:
        job = load_job(job_file, job_parameters(params))
        chosen = _chosen(cases_of(job_file.absolute(), job.name), cases)
        prepared = [_Prepared(case, _inputs(case, job), _expected(case, job)) for case in chosen]
        with tempfile.TemporaryDirectory(prefix="ottla-test-") as scratch, _spark(job, Path(scratch)) as trials:
            if update:
                written = sum(update_files(each.case, trials.run(each.case, each.inputs, broker)) for each in prepared)
                note(f"{plural(written, 'file')} changed")
                return exits.OK
            for each in prepared:
                result = _compare(each, trials, broker)
                results.append(result)
                _print(result)
    total = plural(len(results), "case")
    failed = sum(not result.is_passed for result in results)
    hint = "; --update takes what came out as expected" if any(result.failure for result in results) else ""
    note(f"{failed} of {total} failed{hint}" if failed else f"{total} passed")
    return exits.FAILED if failed else exits.OK


@contextmanager
def _reporting(junit: Path | None, suite: str) -> Iterator[list[CaseResult]]:
    """A list for the results of cases, which the block's end writes to the file; an error of the block is one of them.

    The file is emptied first, so that the report of an earlier run never stands for one that was killed.
    """
    results: list[CaseResult] = []
    if junit is None:
        yield results
        return
    junit.write_bytes(b"")
    try:
        yield results
    except BaseException as problem:
        results.append(CaseResult(suite, 0.0, error=str(problem) or repr(problem)))
        raise
    finally:
        junit.write_bytes(to_xml(suite, results))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A case and what its files hold."""

    case: Case
    inputs: Mapping[str, Sequence[InputRecord]]
    expected: Mapping[str, Sequence[Line]]


def _compare(prepared: _Prepared, trials: "_Trials", broker: str | None) -> CaseResult:
    """Run the job over a case. An error of the job is the result of this case: the others still run."""
    began_s = time.monotonic()
    name = prepared.case.name
    try:
        found = trials.run(prepared.case, prepared.inputs, broker)
    except PipelineError as problem:
        return CaseResult(name, time.monotonic() - began_s, error=str(problem))
    failure: list[str] = []
    for output in outputs_of(trials.job):
        comparison = compare(output, prepared.expected.get(output, []), found[output])
        if not comparison.is_equal:
            failure += _described(comparison)
    return CaseResult(name, time.monotonic() - began_s, failure)


@dataclass(frozen=True, slots=True)
class _Trials:
    """Runs cases one after the other on one session of Spark."""

    spark: "SparkSession"
    job: Job
    scratch: Path

    def run(self, case: Case, inputs: Mapping[str, Sequence[InputRecord]], broker: str | None) -> dict[str, list[Line]]:
        """What comes out of the job."""
        directory = self.scratch / "cases" / case.name
        place = case.directory.parents[2]
        if broker is not None:
            return Trial(self.spark, self.job, place, broker, directory, uuid.uuid4().hex[:8]).run(inputs)
        with serve(directory / "log", directory / "broker.log") as own:
            return Trial(self.spark, self.job, place, own.bootstrap, directory).run(inputs)


@contextmanager
def _spark(job: Job, scratch: Path) -> Iterator[_Trials]:
    from ottla.pipeline import session

    few = {"spark.sql.shuffle.partitions": "1"}  # for few rows: each one more takes its time
    context = session.launch(f"test {job.name}", scratch / "spark", settings={**few, **job.settings})
    try:
        yield _Trials(session.open_session(), job, scratch)
    finally:
        session.stop(context)


def _chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    by_name = {case.name: case for case in cases}
    for name in names:
        if name not in by_name:
            raise GoldenError(f"there is no case {name!r}{did_you_mean_or_list(name, list(by_name))}")
    return [by_name[name] for name in names] or list(cases)


def _inputs(case: Case, job: Job) -> dict[str, list[InputRecord]]:
    """The records of a case by topic. Raises GoldenError."""
    reads = job.reads()
    inputs: dict[str, list[InputRecord]] = {}
    for topic, file in case.inputs().items():
        if topic not in reads:
            raise GoldenError(f"{file}: the job reads no topic {topic!r}{did_you_mean_or_list(topic, sorted(reads))}")
        inputs[topic] = list(_records(file))
    if not inputs:
        raise GoldenError(f"{case.directory} has no input: write records to input.{min(reads, default='TOPIC')}.jsonl")
    return inputs


def _records(file: Path) -> Iterator[InputRecord]:
    parser = JsonInput(now_ms=time.time_ns() // 1_000_000)
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = parser.parse(line)
        except BadLine as problem:
            raise GoldenError(f"{file}, line {number}: {problem}") from None
        timestamp_ms = None if record.timestamp_ms == BROKER_TIME else record.timestamp_ms
        yield InputRecord(record.key, record.value, record.headers, max(0, record.partition), timestamp_ms)


def _expected(case: Case, job: Job) -> dict[str, list[Line]]:
    """The expected lines of each output. Raises GoldenError."""
    outputs = outputs_of(job)
    files = case.expected()
    for output, file in files.items():
        if output not in outputs:
            raise GoldenError(f"{file}: the job has no output {output!r}{did_you_mean_or_list(output, outputs)}")
    return {output: read_lines(file) for output, file in files.items()}


def update_files(case: Case, found: Mapping[str, Sequence[Line]]) -> int:
    """Write the files of what is expected, and say which have changed. Returns how many."""
    changed = 0
    for output, lines in found.items():
        file, text = case.expected_file(output), to_text(lines)
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if text == before:
            continue
        changed += 1
        if lines:
            file.write_text(text, encoding="utf-8")
        else:
            file.unlink()
        click.echo(f"{file}: {plural(len(lines), 'record')}")
    return changed


def _described(comparison: Comparison) -> list[str]:
    counts = (
        f"{comparison.output}: {comparison.matching:,} as expected, {len(comparison.changed):,} different (~), "
        f"{len(comparison.missing):,} missing (-), {len(comparison.unexpected):,} unexpected (+)"
    )
    return [counts, *(f"  {text}" for text in comparison.describe())]


def _print(result: CaseResult) -> None:
    outcome = "ok" if result.is_passed else "FAILED" if result.error is None else "ERROR"
    click.echo(f"{outcome}\t{result.name}\t{result.took_s:.1f} s")
    for text in (result.error,) if result.error is not None else result.failure:
        click.echo(f"  {text}")
