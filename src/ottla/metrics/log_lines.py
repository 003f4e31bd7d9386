"""Counts the lines that Ottla logs, by level: an alert on errors needs no search through logs."""

import logging
from collections import Counter


class LogLines(logging.Handler):
    """A handler of the logger `ottla`, which writes nothing. Called on any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter(dict.fromkeys(("WARNING", "ERROR", "CRITICAL"), 0))

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[record.levelname] += 1

    def __enter__(self) -> "LogLines":
        logging.getLogger("ottla").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("ottla").removeHandler(self)
