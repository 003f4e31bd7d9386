"""Names of jobs, runs and flows, and the nearest one to a name that is not there."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

from ottla.pipeline.errors import PipelineError

LONGEST_TOPIC: Final = 249
"""Characters of a topic's name: Kafka makes a directory of it."""
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_run_name(name: str) -> bool:
    """Whether it may name a job or a run: it becomes part of a directory, of topics and of Spark's query names."""
    return _RUN.fullmatch(name) is not None


RUN_NAME_RULE: Final = "up to 100 letters, digits, '.', '_' and '-', a letter or digit first"


def check_topic_names(topics: Iterable[str]) -> None:
    """Raises PipelineError for a topic to be written whose name is too long, by a suffix for example."""
    for topic in sorted(topics):
        if len(topic) > LONGEST_TOPIC:
            raise PipelineError(
                f"the job writes topic {topic!r}, whose name has {len(topic)} characters, and a topic's has at most "
                f"{LONGEST_TOPIC}: shorten the name of the job, of the topic, or what a replay adds (--into)"
            )


def did_you_mean(wanted: str, known: Collection[str], *, otherwise: str = "") -> str:
    """`"; did you mean 'flights'?"` when a known name is near, else `otherwise`."""
    found = get_close_matches(wanted, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else otherwise
