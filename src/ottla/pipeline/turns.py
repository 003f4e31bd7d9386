"""PURE. Which queries of a run `--once` start when.

    stage 1   enriched ─────── 1st micro-batch ── 2nd ─────────────────────▶ end
              flights.dead-letters  │              ╰─▶ start                   │
    stage 2   hours                 ╰─▶ start, follow ──────────────────────── ├─▶ start anew, read to the end
              delays, with a watermark                                         ╰─▶ start

A stage begins when the one before has ended. Two kinds of queries deviate, so that the first results of a job come
soon: dead letters leave the processor to the flows until those have something to show, and queries that may follow
begin one stage early, behind what they read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_OF_WHAT_FOLLOWS: Final = 1
_OF_PATIENCE: Final = 2
_WORTH_FOLLOWING: Final = 4
"""A query that has followed is planned and compiled twice: to read little sooner is not worth that."""


class After(NamedTuple):
    """A query starts when each of these `queries` has had so many micro-batches with records, or has ended; with
    `times_left`, only while each has so many times as many records to read as it has read."""

    queries: frozenset[str]
    batches: int
    times_left: int = 0


@dataclass(frozen=True, slots=True)
class Turns:
    """`stages` are groups of names, `upstream` has for each name those that write what it reads. `following` are those
    that may begin before what they read is complete, `patient` those that begin behind the rest of their stage."""

    stages: Sequence[Sequence[str]]
    upstream: Mapping[str, Collection[str]] = field(default_factory=dict)
    following: Collection[str] = ()
    patient: Collection[str] = ()

    def behind(self, stage: int) -> dict[str, After]:
        """The queries that start in the course of a stage, and after what."""
        members = self.stages[stage]
        flows = frozenset(name for name in members if name not in self.patient)
        later = self.stages[stage + 1] if stage + 1 < len(self.stages) else ()
        patient = {name: After(flows, _OF_PATIENCE) for name in members if name in self.patient}
        writers = {name: frozenset(members).intersection(self.upstream.get(name, ())) for name in later}
        following = {
            name: After(writers[name], _OF_WHAT_FOLLOWS, _WORTH_FOLLOWING) for name in later if name in self.following
        }
        return {**patient, **{name: after for name, after in following.items() if after.queries}}
