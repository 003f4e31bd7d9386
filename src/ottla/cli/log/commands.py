"""`ottla log`: look into log files, and check them. Reads files only; needs no broker, and disturbs none."""

from collections.abc import Sequence
from pathlib import Path

import click

from ottla.cli.app import Verbs
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import (
    Column,
    Row,
    columns_of,
    complain,
    confirm,
    json_option,
    note,
    plural,
    print_json,
    print_rows,
    progress_wanted,
    yes_option,
)
from ottla.cli.terminal.progress import Progress

BATCH_COLUMNS = columns_of(
    "position# base_offset=FIRST# last_offset=LAST# records# bytes# compression=CODEC",
    "max_timestamp=LATEST leader_epoch=EPOCH# producer sequence# flags crc",
)
PROBLEM_COLUMNS = columns_of("file~ position# severity problem~")
STRAY_COLUMNS = columns_of("topic partition# topic_id bytes# written=LAST_WRITTEN path=DIRECTORY~")
_ROWS_PER_TABLE = 2000


@click.group(cls=Verbs)
def command() -> None:
    """Look into log files and check them; a running broker is not disturbed."""


@command.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--records", "-r", "with_records", is_flag=True, help="Show the records rather than the batches.")
@click.option(
    "--offset",
    "-o",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    help="Begin with the batch that holds this offset.",
)
@click.option(
    "--max",
    "-n",
    "max_rows",
    metavar="N",
    type=click.IntRange(1),
    help="Show at most so many batches or records of each file.",
)
@click.option(
    "--decode", is_flag=True, help="Spell out the records of the coordinators' topics, and of Kafka's metadata log."
)
@json_option
def dump(
    paths: tuple[Path, ...], with_records: bool, offset: int, max_rows: int | None, decode: bool, as_json: bool
) -> int:
    """Print what is in log files: batches or records of .log and of .checkpoint (snapshots of Kafka's metadata log),
    entries of .index, .timeindex, .txnindex and .snapshot, lines of checkpoints.

    PATH is a file, or a partition's directory for all its .log files. With --json each row is one line.
    """
    from ottla.cli.log.dump import dump_file, files_to_dump, tables

    code = exits.OK
    for path in files_to_dump(paths):
        heading = "" if as_json or (len(paths) == 1 and path == paths[0]) else str(path)
        rows = dump_file(
            path, with_records=with_records or decode, from_offset=offset, max_rows=max_rows, decode=decode
        )
        columns = tables(path, with_records=with_records or decode, decode=decode) or BATCH_COLUMNS
        chunk: list[Row] = []
        problem: str | None = None
        for row in rows:
            if isinstance(row, str):
                problem = row
            elif as_json:
                print_json_line(row)
            else:
                chunk.append(row)
                if len(chunk) >= _ROWS_PER_TABLE:
                    _print_part(heading, chunk, columns)
                    heading, chunk = "", []
        if chunk:
            _print_part(heading, chunk, columns)
        if problem is not None:
            complain(problem)
            code = exits.FAILED
    return code


def _print_part(heading: str, rows: list[Row], columns: Sequence[Column]) -> None:
    note(heading)
    print_rows(rows, columns)


def print_json_line(row: Row) -> None:
    """Print one row as one line of JSON."""
    import json

    click.echo(json.dumps(row, ensure_ascii=False))


@command.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--records", "-r", "with_records", is_flag=True, help="Also unpack every batch and count its records.")
@json_option
def verify(paths: tuple[Path, ...], with_records: bool, as_json: bool) -> int:
    """Check every byte of log files: checksums, offsets in order, indexes that point at batches, checkpoints.

    PATH is a log directory (log.dirs), a partition's directory, or one .log file. Nothing is changed. Exit code 1 means
    damage. What a crash can leave past the recovery point, and recovery cuts off, is reported but is no damage.
    """
    from ottla.cli.log.verify import Verification, has_partitions, segments_of

    found = segments_of(paths)
    if not found and not any(has_partitions(path) for path in paths):
        raise click.UsageError(f"no log files in {', '.join(map(str, paths))}")
    verification = Verification(with_records=with_records)
    total_bytes = sum(segment.size_bytes for segment in found)
    with Progress("checked", "batches", total=total_bytes, wanted=progress_wanted()) as progress:
        for segment in found:
            verification.check_segment(segment, lambda: progress.show(verification.batches, verification.bytes))
        verification.check_directories({segment.path.parent for segment in found})
    rows: list[Row] = [
        {"file": str(each.path), "position": each.position, "severity": each.severity, "problem": each.text}
        for each in verification.problems
    ]
    damaged = sum(each.severity == "damage" for each in verification.problems)
    summary = {
        "segments": len(found),
        "batches": verification.batches,
        "records": verification.records,
        "bytes": verification.bytes,
        "damaged": damaged,
    }
    if as_json:
        print_json({**summary, "problems": rows})
    else:
        if rows:
            print_rows(rows, PROBLEM_COLUMNS)
        note(
            f"{plural(len(found), 'segment')}, {plural(verification.batches, 'batch', 'batches')}, "
            f"{plural(verification.records, 'record')}, {verification.bytes:,} bytes checked: "
            + (f"{plural(damaged, 'damage', 'damages')} found" if damaged else "intact")
        )
    return exits.FAILED if damaged else exits.OK


@command.command()
@click.argument(
    "paths",
    metavar="DIRECTORY...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--remove", is_flag=True, help="Remove them, after a question; without it they are only listed.")
@yes_option
@json_option
def strays(paths: tuple[Path, ...], remove: bool, yes: bool, as_json: bool) -> int:
    """List what a broker has set aside in its log directories (log.dirs): partitions that it does not serve.

    A topic that was deleted while the broker was down leaves them; so does one of an earlier cluster, and a replica
    whose leader no longer had what was committed: such a directory may be the only copy of acknowledged records.
    Nothing reads them, and nothing else removes them. Look at them before you do (`ottla log dump --records`).
    """
    from ottla.cli.log.strays import find_strays
    from ottla.cli.log.strays import remove as remove_stray

    found = find_strays(paths)
    rows: list[Row] = [stray.row() for stray in found]
    total_bytes = sum(stray.size_bytes for stray in found)
    if as_json:
        print_json({"strays": rows, "bytes": total_bytes})
    elif rows:
        print_rows(rows, STRAY_COLUMNS)
    what = f"{plural(len(found), 'stray directory', 'stray directories')} of {total_bytes:,} bytes"
    if not remove or not found:
        note("" if as_json else what)
        return exits.OK
    confirm(f"Remove {what} for good? Of records that a leader has lost, they may be the only copy.", yes=yes)
    for stray in found:
        remove_stray(stray)
    note(f"removed {what}")
    return exits.OK
