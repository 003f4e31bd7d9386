"""The flows behind the names of Spark's tasks: each task of a query has a group and a transactional id of its own
(`ottla.spark.exactly_once`), which name the query by Spark's id alone."""

import json
import re
from pathlib import Path
from typing import Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import run_directories

_TASK: Final = re.compile(r"ottla-spark-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(\d+)")


class TaskNames:
    """What the runs in `home` call their queries."""

    def __init__(self, home: Path) -> None:
        self._flows: dict[str, str] = {}
        for run, directory in run_directories(home).items():
            try:
                flows = directory.read().flows
            except PipelineError:  # written by something else
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
