"""The flows behind the names of Spark's tasks: each task of a query has a group and a transactional id of its own
(`ottla.spark.exactly_once`), which name the query by Spark's id alone."""

import json
import re
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import find_home, run_directories

_TASK: Final = re.compile(r"ottla-spark-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(\d+)")


def query_of_task(name: str) -> str | None:
    """Spark's id of the query, if this is the name of a task's group or transactional id."""
    found = _TASK.fullmatch(name)
    return None if found is None else found[1]


class TaskNames:
    """What the runs in a home call their queries. Names are a help: where there is no home, or none that can be read,
    tasks have none."""

    def __init__(self, given: Path | None = None) -> None:
        """`given` None: the home is where commands for jobs look for it."""
        self._flows: dict[str, str] = {}
        try:
            runs = run_directories(find_home(given))
        except (OSError, RuntimeError):  # not to be read, or this user has no directory
            return
        for run, directory in runs.items():
            try:
                flows = directory.read().flows
            except (PipelineError, OSError):  # written by something else, or by somebody else
                continue
            for flow, about in flows.items():
                try:
                    text = (Path(about.checkpoint) / "metadata").read_text(encoding="utf-8")
                    self._flows[json.loads(text)["id"]] = f"{run}.{flow}"
                except (OSError, ValueError, KeyError, TypeError):  # it has not begun
                    continue

    def task_of(self, name: str) -> str | None:
        """`RUN.FLOW, task N` for the name of a task; `a query of Spark, task N` where no run here has that query; None
        for other names."""
        found = _TASK.fullmatch(name)
        if found is None:
            return None
        query, task = found.groups()
        return f"{self._flows.get(query, 'a query of Spark')}, task {task}"

    def flow_of(self, query: str) -> str | None:
        """`RUN.FLOW` of a query by Spark's id; None where no run here has it."""
        return self._flows.get(query)
