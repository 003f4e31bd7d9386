"""A replay takes the place of the run that it replays (ADR 11).

    flights  run.json   suffix ""    checkpoints: its own      writes delays
    v2       run.json   suffix "v2"  checkpoints: its own      writes delays-v2, replays flights

    promoted:
    flights  run.json   suffix "v2"  checkpoints: those of v2  writes delays-v2
    v2       run.json   promoted_to flights                    no longer runs

Nothing is moved, copied or deleted: the change is one replacement of one file, before which the replay is taken out of
use. After a crash in between, the first run is as it was, and promoting again does the rest.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import FAILED, STOPPED, RunDirectory, RunRecord, find_run
from ottla.pipeline.stopping import stop
from ottla.waiting import tries

_LOOK_EVERY_S: Final = 0.5
_NO_TOPIC: Final = "#"
"""The key beside the topics under which the source keeps what else belongs to its offset."""

Positions = dict[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


class PromotionError(PipelineError):
    """A replay cannot take the place of its run; the message explains why and what to do first."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """What has changed: the outputs of each flow before and after, as sinks describe themselves."""

    name: str
    replay: str
    outputs: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Behind:
    """A flow of the replay has read less of a topic than the same flow of the first run."""

    flow: str
    topic: str
    records: int


def check(home: Path, replay_name: str) -> tuple[RunDirectory, RunDirectory]:
    """The first run and its replay, if one can take the other's place. Raises PromotionError or RunNotFoundError."""
    replay = find_run(home, replay_name)
    record = replay.read()
    if record.replays is None:
        raise PromotionError(
            f"{replay_name!r} replays nothing, so there is no place to take: a replay is made by "
            f"`ottla pipeline replay NAME --from TIME --into {replay_name}-2`"
        )
    first = find_run(home, record.replays)
    first_record = first.read()
    if first_record.promoted_to is not None:
        raise PromotionError(
            f"{replay_name!r} is a replay of {first.name!r}, which is {first_record.promoted_to!r} by now: replay that"
        )
    if record.promoted_to is not None and first_record.checkpoints == str(replay.checkpoints_of(record)):
        raise PromotionError(f"{replay_name!r} has been promoted already: it runs as {first.name!r}")
    if record.state == FAILED:
        raise PromotionError(
            f"{replay_name!r} has failed ({record.error}), and should not replace a run that works: "
            "mend that and start it again"
        )
    for flow, about in record.flows.items():
        if about.state == FAILED:
            raise PromotionError(
                f"the flow {flow!r} of {replay_name!r} has failed ({about.error}), and should not replace one that "
                "works: mend that and start it again"
            )
    return first, replay


def take_place(home: Path, replay_name: str, *, within_s: float, even_behind: bool = False) -> Promotion:
    """Have the replay take the place of its run, however far both are: wait until the replay has caught up, stop both,
    and promote it. `within_s`, seconds, is how long each wait may take.

    Raises PromotionError for a replay that does not catch up, PipelineError for a run that does not stop.
    """
    first, replay = check(home, replay_name)
    is_running = replay.process_id() is not None
    if not even_behind:
        if is_running:
            # the first goes on until the replay has come to where it is now, so that a refusal stops nothing
            goal = reached(first)
            _refuse(_wait(lambda: behind(first, replay, goal), within_s), replay_name, first.name)
        else:
            refuse_behind(first, replay)
    was_running = first.process_id() is not None
    try:
        stop(first, within_s=within_s)
        if is_running:
            # the first does not move any more: the little that it has read since, the replay reads in a moment
            if not even_behind:
                _refuse(_wait(lambda: behind(first, replay), within_s), replay_name, first.name)
            stop(replay, within_s=within_s)
        if not even_behind:
            refuse_behind(first, replay)
    except PipelineError as problem:
        if not was_running or first.process_id() is not None:
            raise
        raise PromotionError(f"{problem}. {first.name!r} was stopped for this: start it again now") from None
    return promote(home, replay_name)


def refuse_behind(first: RunDirectory, replay: RunDirectory) -> None:
    """Raise PromotionError for a replay that has not come as far as the run that it would replace."""
    _refuse(behind(first, replay), replay.name, first.name)


def _wait(look: Callable[[], list[Behind]], within_s: float) -> list[Behind]:
    """Until nothing is behind, or for so long: what is."""
    found: list[Behind] = []
    for _ in tries(within_s, every_s=_LOOK_EVERY_S):
        found = look()
        if not found:
            break
    return found


def _refuse(found: list[Behind], replay: str, first: str) -> None:
    if not found:
        return
    worst = max(found, key=lambda each: each.records)
    missing = f"{worst.records:,} record{'' if worst.records == 1 else 's'}"
    raise PromotionError(
        f"{replay!r} has not caught up with {first!r}: flow {worst.flow!r} is {missing} of topic {worst.topic!r} "
        "behind; run it until it has, or add --even-behind"
    )


def promote(home: Path, replay_name: str) -> Promotion:
    """Have the replay take the place of its run. Both must have been stopped.

    Raises PromotionError, or AlreadyRunningError for one that still runs.
    """
    first, replay = check(home, replay_name)
    with ExitStack() as held:
        for each in (first, replay):
            held.enter_context(each.claimed())
        old, new = first.read(), replay.read()
        outputs = {
            flow: (old.flows[flow].output if flow in old.flows else "nothing", each.output)
            for flow, each in new.flows.items()
        }
        new.state = STOPPED
        new.promoted_to = first.name  # from here on only another promotion touches it
        replay.write(new)
        first.write(_successor(old, new, replay))
    return Promotion(first.name, replay.name, outputs)


def _successor(old: RunRecord, new: RunRecord, replay: RunDirectory) -> RunRecord:
    """The record of the first run with everything of the replay but its name and origin."""
    successor = RunRecord.from_json(new.to_json())
    successor.name = old.name
    successor.replays = old.replays
    successor.promoted_to = None
    successor.checkpoints = str(replay.checkpoints_of(new))
    return successor


def reached(run: RunDirectory) -> dict[str, Positions]:
    """How far each query of a run has come, as of its checkpoints."""
    record = run.read()
    return {flow: positions(run.checkpoints_of(record) / flow) for flow in record.flows}


def behind(first: RunDirectory, replay: RunDirectory, goal: Mapping[str, Positions] | None = None) -> list[Behind]:
    """Where the replay has not come as far as the run that it would replace, or as the `goal`."""
    goal = reached(first) if goal is None else goal
    there = replay.checkpoints_of(replay.read())
    found: list[Behind] = []
    for flow in replay.read().flows:
        mine = positions(there / flow)
        # a topic that another flow of the job writes has another name in the replay
        shared = {topic for topic, _ in mine} if mine else None
        short: dict[str, int] = {}
        for (topic, number), offset in goal.get(flow, {}).items():
            left = offset - mine.get((topic, number), 0)
            if left > 0 and (shared is None or topic in shared):
                short[topic] = short.get(topic, 0) + left
        found.extend(Behind(flow, topic, records) for topic, records in short.items())
    return found


def positions(checkpoint: Path) -> Positions:
    """How far a query has read its topics, by the last micro-batch that was committed; empty if there was none."""
    commits = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*") if file.name.isdigit()]
    if not commits:
        return {}
    try:
        text = (checkpoint / "offsets" / str(max(commits))).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return dict(_offsets(text.splitlines()[2:]))  # after the version and the micro-batch's settings


def _offsets(sources: list[str]) -> Iterator[tuple[tuple[str, int], int]]:
    for source in sources:
        try:
            by_topic = json.loads(source)
            yield from (
                ((topic, int(number)), int(offset))
                for topic, partitions in by_topic.items()
                if topic != _NO_TOPIC
                for number, offset in partitions.items()
            )
        except (ValueError, AttributeError, TypeError):
            continue  # of files, or '-' for a source that had nothing yet
