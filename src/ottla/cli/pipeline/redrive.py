"""`ottla pipeline redrive`: dead letters back to the topics they came from."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from ottla.cli.brokers.client import Connection, client_log, connection_options, known_topics
from ottla.cli.pipeline.options import home_option
from ottla.cli.terminal import exits
from ottla.cli.terminal.choices import INSTANT
from ottla.cli.terminal.output import (
    Row,
    columns_of,
    json_option,
    note,
    plural,
    print_json,
    print_rows,
    progress_wanted,
)
from ottla.cli.terminal.progress import Progress
from ottla.pipeline.late_again import watermarks
from ottla.pipeline.mending import load_mend
from ottla.pipeline.redrive import DEFAULT_MAX_REDRIVES, Account, Fate, Plan, Sample, Wanted, foreseen, redrive
from ottla.pipeline.run_rows import utc

_COLUMNS = columns_of("letters# fate topic reason~")
_WOULD_BE_SENT = "would be sent"


@click.command()
@click.argument("letters", metavar="TOPIC")
@click.option("--reason", metavar="TEXT", help="Only letters whose reason contains this, in any case.")
@click.option("--flow", metavar="NAME", help="Only letters that this view or flow rejected.")
@click.option(
    "--since", metavar="TIME", callback=INSTANT, help="Only letters as young as this: 10m or 2h (ago), ISO 8601."
)
@click.option("--until", metavar="TIME", callback=INSTANT, help="Only letters older than this.")
@click.option("--to", metavar="TOPIC", help="Send them there. [default: where each came from]")
@click.option(
    "--max-redrives",
    metavar="N",
    type=click.IntRange(1),
    default=DEFAULT_MAX_REDRIVES,
    help=f"Leave letters that have come back so often. [default: {DEFAULT_MAX_REDRIVES}]",
)
@click.option("--rate", metavar="N", type=click.FloatRange(min=0, min_open=True), help="At most so many a second.")
@click.option(
    "--keep-time",
    is_flag=True,
    help="Keep the records' timestamps; records older than the topic's retention are soon deleted.",
)
@click.option(
    "--with",
    "mend_file",
    metavar="MEND.PY",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Mend each record first, by the function mend(letter) of this file; see docs/pipeline.md.",
)
@click.option("--leave-late", is_flag=True, help="Leave letters that a watermark would set aside again.")
@click.option("--dry-run", is_flag=True, help="Only list the records that would be sent.")
@home_option
@json_option
@connection_options
def command(
    connection: Connection,
    letters: str,
    reason: str | None,
    flow: str | None,
    since: int | None,
    until: int | None,
    to: str | None,
    max_redrives: int,
    rate: float | None,
    keep_time: bool,
    mend_file: Path | None,
    leave_late: bool,
    dry_run: bool,
    home: Path,
    as_json: bool,
) -> int:
    """Send the dead letters in TOPIC (a job's are in JOB.dead-letters) back to the topics they came from, each once.

    Records get back their key, value and headers, and one header more, ottla.redrives: how often they have been sent.
    What has been sent is remembered by the group ottla-redrive-TOPIC in the same transaction: a redrive that was
    stopped or killed goes on where it was, and what a filter leaves out stays for another.

    Reports first how many of them would be late again, by the watermarks of the runs in --home and by the reasons of
    letters that were late before: records keep their event time, and a watermark never goes back.
    """
    if to == letters:
        raise click.UsageError("--to is the topic of the dead letters itself")
    mend = None if mend_file is None else load_mend(mend_file)
    known_topics(connection.metadata(connection.admin()), [letters, *([] if to is None else [to])])
    wanted, flows = Wanted(reason, flow, since, until), tuple(watermarks(home))
    plan = Plan(letters, wanted, to, max_redrives, rate, keep_time, dry_run, mend, flows, leave_late)
    client = connection.client_configuration(logger=client_log.logger)
    if not dry_run and not leave_late:
        _warn(foreseen(client, plan), plan)
    with Progress("passed", "letters", total=None, wanted=progress_wanted() and not as_json) as progress:

        def show(account: Account) -> None:
            progress.show(account.fates.total())

        account = redrive(client, plan, show)
    if dry_run:
        _warn(account, plan)
    _report(account, plan, as_json)
    return exits.FAILED if account.count(Fate.HOMELESS) or account.count(Fate.UNMENDED) else exits.OK


def _report(account: Account, plan: Plan, as_json: bool) -> None:
    rows = _rows(account.fates, plan)
    if as_json:
        samples = [_sample(each) for each in account.samples]
        late = [asdict(each) | {"letters": number} for each, number in account.late.most_common()]
        print_json(
            {"topic": plan.letters, "dry_run": plan.dry_run, "letters": rows, "samples": samples, "late_again": late}
        )
        return
    print_rows(rows, _COLUMNS)
    for each in account.samples:
        click.echo(f"{each.place}:\n- {_text(each.before.value)}\n+ {_text(each.after.value)}")
    sent = plural(account.count(Fate.SENT), "letter")
    note(f"{sent} would be sent; nothing was changed" if plan.dry_run else f"{sent} sent")
    if homeless := account.count(Fate.HOMELESS):
        note(f"{plural(homeless, 'letter')} came from topics that do not exist, or from none; name one with --to")
    if unmended := account.count(Fate.UNMENDED):
        note(f"{plural(unmended, 'letter')} left, because the function left them or failed")
    if left := account.count(Fate.LATE):
        note(f"{plural(left, 'letter')} left, because a watermark would set them aside again")
    if poison := account.count(Fate.POISON):
        back = plural(plan.max_redrives, "time")
        note(f"{plural(poison, 'letter')} had been sent {back} before and came back; see --max-redrives")


def _warn(account: Account, plan: Plan) -> None:
    """Say which letters a watermark would set aside again."""
    if not account.late:
        return
    of = plural(account.count(Fate.SENT), "letter")
    unless = ", unless the function changes their time" if plan.mend is not None else ""
    note(
        f"{account.late_letters:,} of {of} would be late again{unless}; --leave-late leaves them, a replay counts them:"
    )
    for each, number in account.late.most_common():
        run = "" if each.run is None else f" of {each.run}"
        at = "" if each.at_ms is None else f", whose watermark is at {utc(each.at_ms / 1000)}"
        why = "they were late before" if each.is_sure else "by the time of their records"
        note(f"  {number:,} in the flow {each.flow}{run}{at}: {why}")


def _sample(sample: Sample) -> Row:
    before, after = ({"key": _text(each.key), "value": _text(each.value)} for each in (sample.before, sample.after))
    return {"place": sample.place, "before": before, "after": after}


def _text(part: bytes | None) -> str | None:
    return None if part is None else part.decode("utf-8", "backslashreplace")


def _rows(fates: Counter[tuple[Fate, str, str | None]], plan: Plan) -> list[Row]:
    """Most letters first; those sent at other times are none of this redrive's."""
    return [
        {
            "letters": number,
            "fate": _WOULD_BE_SENT if plan.dry_run and fate is Fate.SENT else fate.value,
            "topic": topic,
            "reason": reason,
        }
        for (fate, reason, topic), number in sorted(fates.items(), key=lambda each: (-each[1], each[0][0].value))
        if fate is not Fate.SENT_BEFORE
    ]
