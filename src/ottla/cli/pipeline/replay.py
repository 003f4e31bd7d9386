"""`ottla pipeline replay`: a job once more from an earlier place, beside the run that goes on."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.brokers.client import (
    Connection,
    connection_options,
    known_topics,
    offset_ranges,
    offsets_at,
    partitions_of,
)
from ottla.cli.pipeline.options import home_option, job_parameters, needs_spark, newest_tables_option, param_option
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import json_option, note, plural
from ottla.cli.terminal.suggest import did_you_mean_or_list
from ottla.cli.terminal.times import parse_instant_ms
from ottla.client.partition import Partition
from ottla.pipeline.context import suffixed
from ottla.pipeline.estimate import Estimate, estimate, rates
from ottla.pipeline.run_rows import duration
from ottla.pipeline.run_store import RunDirectory, RunRecord, find_run, run_directory

if TYPE_CHECKING:
    from ottla.pipeline.job import Job
    from ottla.pipeline.watch import Screen

_EARLIEST: Final = ("earliest", "beginning")
_OFFSET: Final = re.compile(r"-?\d{1,11}")
Starting = dict[str, dict[str, str]]
"""By topic, the options of Spark's source that say where it begins."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin, in one topic or in all: at a time, at an offset (negative: so many before the end), or at the
    earliest record if neither is set."""

    topic: str | None = None
    time_ms: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where the topics begin, and how many records of each there are to read."""

    options: Starting = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


@click.command("replay")
@click.argument("name")
@click.option(
    "--from",
    "places",
    metavar="TIME|OFFSET",
    multiple=True,
    help="Where to begin: earliest, 7d or 2h (ago), ISO 8601, an offset, or -N for the last N of each partition; for "
    "one topic as TOPIC=..., and then repeatable.",
)
@click.option("--into", metavar="NEW", help="The replay's name, and what its outputs end with. [default: NAME-replay]")
@click.option(
    "--job", "job_file", type=click.Path(path_type=Path), metavar="JOB.PY", help="Another file with the same job."
)
@click.option("--master", metavar="URL", help="Spark's master. [default: that of the run]")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark. May be repeated.")
@param_option
@click.option("--once", is_flag=True, help="Process the available records, and end.")
@newest_tables_option
@json_option
@home_option
@connection_options
def command(
    connection: Connection,
    name: str,
    places: tuple[str, ...],
    into: str | None,
    job_file: Path | None,
    master: str | None,
    conf: tuple[str, ...],
    params: tuple[str, ...],
    once: bool,
    newest_tables: bool,
    as_json: bool,
    home: Path,
) -> None:
    """Run the job of the run NAME once more, from an earlier place, side by side with it.

    The replay has checkpoints of its own and writes outputs of its own: each with -NEW at the end of its name. Nothing
    of the first run is touched, which may go on meanwhile. Without --from a replay that was stopped goes on. Afterwards
    `ottla pipeline diff NAME NEW` compares the outputs, and `ottla pipeline promote NEW` takes over.
    """
    needs_spark()
    first = find_run(home, name).read()
    if first.promoted_to is not None:
        raise CommandFailed(f"{name!r} has taken the place of {first.promoted_to!r}: replay that")
    replay = run_directory(home, into or f"{name}-replay")
    asked = [parse_place(place, time.time_ns() // 1_000_000) for place in places]
    _check_name(replay, first, asked)

    from ottla.cli.pipeline.run import screen, spark_settings
    from ottla.pipeline.job_file import load_job
    from ottla.pipeline.running import RunRequest, run

    file = job_file or Path(first.job_file)
    before = replay.read() if replay.exists() else first
    parameters = job_parameters(params)
    job = load_job(file, parameters, before.parameters)
    if job.name != first.job:
        raise CommandFailed(f"{file} declares the job {job.name!r}, but {name!r} is a run of {first.job!r}")
    if _is_default(connection):
        connection.bootstrap = first.bootstrap
    start = Start() if replay.exists() else _start(connection, job, replay.name, asked)
    request = RunRequest(
        job=job,
        file=file,
        home=home,
        bootstrap=connection.bootstrap,
        name=replay.name,
        properties=connection.properties,
        settings=spark_settings(conf),
        master=master or first.master,
        once=once,
        suffix=replay.name,
        starting=start.options,
        replays=name,
        tables=first.tables,
        newest_tables=newest_tables,
        parameters={key: value for key, value in {**before.parameters, **parameters}.items() if key in job.parameters},
    )
    with screen(as_json=as_json) as shown:
        if not replay.exists():
            _announce(estimate(_reads(job), start.waiting, rates(home, job.name)), replay.name, shown, as_json=as_json)
        run(request, shown)
    note(f"compare: ottla pipeline diff {name} {replay.name}; take over: ottla pipeline promote {replay.name}")


def parse_place(text: str, now_ms: int) -> Place:
    """`[TOPIC=]WHERE`. Raises click.UsageError."""
    topic, equals, where = text.rpartition("=")
    if equals and not topic:
        raise click.UsageError(f"--from {text}: name the topic before '='")
    if where.lower() in _EARLIEST:
        return Place(topic or None)
    if _OFFSET.fullmatch(where):
        return Place(topic or None, offset=int(where))
    try:
        return Place(topic or None, time_ms=parse_instant_ms(where, now_ms))
    except ValueError as unclear:
        raise click.UsageError(f"--from: {unclear}; or earliest, or an offset") from None


def place_of_each(asked: Sequence[Place], topics: Sequence[str]) -> dict[str, Place]:
    """Where each topic begins. Raises click.UsageError for one that is not read, is named twice, or not at all."""
    everywhere = [place for place in asked if place.topic is None]
    if len(everywhere) > 1:
        raise click.UsageError("--from without a topic is given more than once")
    found: dict[str, Place] = {}
    for place in asked:
        if place.topic is None:
            continue
        if place.topic not in topics:
            hint = did_you_mean_or_list(place.topic, topics)
            raise click.UsageError(f"--from: the job reads no topic {place.topic!r}{hint}")
        if place.topic in found:
            raise click.UsageError(f"--from is given more than once for {place.topic!r}")
        found[place.topic] = place
    left = [topic for topic in topics if topic not in found]
    if left and not everywhere:
        raise click.UsageError(f"--from names no start for {', '.join(left)}: add one without a topic")
    if len(left) > 1 and everywhere[0].offset is not None:
        raise click.UsageError(
            f"an offset means another place in each topic ({', '.join(left)}): give --from TOPIC=OFFSET for each"
        )
    return found | dict.fromkeys(left, everywhere[0]) if left else found


def options_for(place: Place, topic: str, ranges: Mapping[Partition, tuple[int, int]]) -> dict[str, str]:
    """The options of the source for one topic, whose partitions hold the offsets `ranges`. An offset outside of a
    partition is brought to its nearest end. Raises CommandFailed for one past the end of them all."""
    if place.time_ms is not None:
        return {"startingTimestamp": str(place.time_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if place.offset is None:
        return {"startingOffsets": "earliest"}
    mine = {partition.partition: each for partition, each in ranges.items() if partition.topic == topic}
    last = max(end for _, end in mine.values())
    if place.offset > last:
        raise CommandFailed(f"topic {topic!r} ends at offset {last:,}: there is no {place.offset:,} to begin at")
    offsets = {
        str(number): min(end, max(first, place.offset if place.offset >= 0 else end + place.offset))
        for number, (first, end) in sorted(mine.items())
    }
    return {"startingOffsets": json.dumps({topic: offsets})}


def records_from(place: Place, ranges: Mapping[Partition, tuple[int, int]], at_time: Mapping[Partition, int]) -> int:
    """How many offsets there are from a place to the end of these partitions; `at_time` has those of its time."""

    def begin(partition: Partition, first: int, end: int) -> int:
        if place.time_ms is not None:
            return at_time[partition]
        if place.offset is None:
            return first
        return place.offset if place.offset >= 0 else end + place.offset

    return sum(max(0, end - max(first, begin(partition, first, end))) for partition, (first, end) in ranges.items())


def _check_name(replay: RunDirectory, first: RunRecord, asked: Sequence[Place]) -> None:
    if not replay.exists():
        if not asked:
            raise click.UsageError("name the start: --from TIME|OFFSET, or --from earliest")
        return
    replays = replay.read().replays
    if replays != first.name:
        what = "no replay" if replays is None else f"a replay of {replays!r}"
        raise CommandFailed(f"{replay.name!r} is {what}: give this one another name with --into")
    if asked:
        raise CommandFailed(
            f"{replay.name!r} has begun already: without --from it goes on; another begins with another --into"
        )


def _announce(found: Estimate, name: str, shown: "Screen", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"estimate": asdict(found)}))
        return
    records = plural(found.records, "record")
    if found.slowest is None:
        how_long = "how long that takes is not known: no earlier run of the job had enough to read"
    else:
        rate = round(found.flows[found.slowest].rate or 0)
        how_long = f"that takes about {duration(found.seconds or 0)} at the {rate:,} records/s of {found.slowest!r}"
    shown.say(f"{name}: {records} to read" + (f"; {how_long}" if found.records else ""))


def _reads(job: "Job") -> dict[str, set[str]]:
    """The topics that each flow reads as a stream."""
    from ottla.pipeline.inputs import Topic
    from ottla.pipeline.rows.captured import Captured

    return {
        name: {topic for each in job.sources(flow) if isinstance(each, Topic | Captured) for topic in each.topics}
        for name, flow in job.flows.items()
    }


def _start(connection: Connection, job: "Job", suffix: str, asked: Sequence[Place]) -> Start:
    """Where each topic begins that the job reads as a stream. Raises CommandFailed, also if an output is in use."""
    written = job.writes()
    streams = {topic for topics in _reads(job).values() for topic in topics}
    read = sorted(streams - written)
    places = place_of_each(asked, read)
    admin = connection.admin()
    metadata = connection.metadata(admin)
    partitions = partitions_of(known_topics(metadata, read))
    copies = [name for topic in sorted(written) if (name := suffixed(topic, written, suffix)) in metadata.topics]
    taken = offset_ranges(connection, admin, partitions_of(known_topics(metadata, copies)))
    for partition, (begin, end) in taken.items():
        if end > begin:
            raise CommandFailed(
                f"topic {partition.topic!r}, which the replay would write, has records already: give another --into, "
                f"or delete it (`ottla topic delete {partition.topic}`)"
            )
    ranges = offset_ranges(connection, admin, partitions)
    # what flows of the job write for each other, the replay writes itself
    own = {topic: {"startingOffsets": "earliest"} for topic in streams & written}
    options = own | {topic: options_for(place, topic, ranges) for topic, place in places.items()}
    waiting = {}
    for topic, place in places.items():
        mine = {partition: each for partition, each in ranges.items() if partition.topic == topic}
        at_time = {} if place.time_ms is None else offsets_at(connection, admin, mine, place.time_ms)
        waiting[topic] = records_from(place, mine, at_time)
    return Start(options, waiting)


def _is_default(connection: Connection) -> bool:
    source = click.get_current_context().get_parameter_source("bootstrap")
    return source is click.core.ParameterSource.DEFAULT
