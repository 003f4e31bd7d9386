"""Does a flow still fit its checkpoint? What must not change is kept beside it, and compared at each start.

Spark's checkpoint knows the sources by their place, and state by operator, key and the partitions of a shuffle. Some
changes it refuses with words of its own, late; others it takes and goes wrong. Filters, projections, triggers, static
tables and options of sources may change freely.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.errors import CheckpointMismatchError
from ottla.pipeline.plan_state import state_of

if TYPE_CHECKING:
    from ottla.pipeline.queries import Planned

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class Fit:
    """What a checkpoint depends on. `stateful` has a line for each operator with state: its kind, keys and values.

    `values` are those of its aggregations in the order in which Spark keeps them, `windows` the lengths of its windows;
    None: an older checkpoint, of which only `stateful` is known, where values are sorted.
    """

    inputs: list[str]
    output: str
    mode: str
    stateful: list[str]
    shuffle_partitions: str
    values: list[list[str]] | None = None
    windows: list[str] | None = None

    def changes_to(self, now: "Fit", *, asks_for_partitions: bool) -> Iterator[str]:
        """What of the checkpoint does not go with the flow as it is `now`, each as a phrase.

        A number of shuffle partitions matters only if it is asked for: Spark keeps to the one in the checkpoint.
        """
        if self.inputs != now.inputs:
            yield f"it read {_listed(self.inputs)} and now reads {_listed(now.inputs)}"
        if self.output != now.output:
            yield f"it wrote {self.output} and now writes {now.output}"
        if self.mode != now.mode:
            yield f"its output mode was {self.mode} and is {now.mode}"
        if len(self.stateful) != len(now.stateful):
            yield f"it kept state for {_listed(self.stateful)}, and now for {_listed(now.stateful)}"
        else:
            for before, after in zip(self.stateful, now.stateful, strict=True):
                if before != after:
                    yield f"its state was that of {before}, and is that of {after}"
            if self.stateful == now.stateful and self.values is not None and self.values != now.values:
                yield (
                    f"it kept the values {_in_order(self.values)}, and now {_in_order(now.values or [])}: Spark finds "
                    "them in the state by their place"
                )
        if self.windows is not None and self.windows != now.windows:
            yield f"it kept {_listed(self.windows)}, and now {_listed(now.windows or [])}"
        if asks_for_partitions and now.stateful and self.shuffle_partitions != now.shuffle_partitions:
            yield (
                f"its state is in {self.shuffle_partitions} partitions, and {_SHUFFLE_PARTITIONS} asks for "
                f"{now.shuffle_partitions}"
            )


def has_unfinished_batch(checkpoint: Path) -> bool:
    """Whether a micro-batch was begun and not finished: it is done again at the next start."""
    begun, done = (
        max((int(each.name) for each in (checkpoint / kind).glob("[0-9]*")), default=-1)
        for kind in ("offsets", "commits")
    )
    return begun > done


def check_fit(query: "Planned", checkpoint: Path, settings: Mapping[str, str]) -> None:
    """Compare a query with what its checkpoint holds, and write down what it depends on if it holds nothing yet.

    `settings` are those that the job or the command line sets. Raises CheckpointMismatchError with all that has
    changed, or OSError.
    """
    now = fit_of(query)
    kept = checkpoint.with_name(checkpoint.name + ".json")
    if not any((checkpoint / "offsets").glob("[0-9]*")):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(now), indent=1) + "\n", encoding="utf-8")
        return
    before = kept_fit(checkpoint)
    if before is None:
        return  # Spark's own checks remain
    changes = list(before.changes_to(now, asks_for_partitions=_SHUFFLE_PARTITIONS in settings))
    if changes:
        raise CheckpointMismatchError(
            f"{query.name!r} no longer fits its checkpoint: {'; '.join(changes)}. Undo that; leave the flow out "
            "(--except); have its open windows computed anew, if it has windows and writes in mode append (--regroup); "
            "or compute all of its output anew from its inputs: `ottla pipeline replay`, then promote"
        )


def kept_fit(checkpoint: Path) -> Fit | None:
    """What a checkpoint depends on; None if that was not written down."""
    try:
        return Fit(**json.loads(checkpoint.with_name(checkpoint.name + ".json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def fit_of(query: "Planned") -> Fit:
    """What a checkpoint of the query would depend on."""
    inputs = [each.describe() for each in query.sources]
    partitions = str(query.rows.sparkSession.conf.get(_SHUFFLE_PARTITIONS))
    kept = state_of(query.rows)
    return Fit(inputs, query.sink.describe(), query.mode, kept.operators, partitions, kept.values, kept.windows)


def _in_order(values: list[list[str]]) -> str:
    return " and ".join(f"({', '.join(each)})" for each in values)


def _listed(phrases: list[str]) -> str:
    return " and ".join(phrases) or "nothing"
