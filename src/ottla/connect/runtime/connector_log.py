"""The last lines that each connector has logged on this worker: what `ottla connect logs` shows."""

import collections
import logging
import threading
from typing import Final

from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.task import CONNECTOR_LOG

_KEPT: Final = 1000


class CleanFormatter(logging.Formatter):
    """Lines without secrets."""

    def __init__(self, form: str, secrets: Secrets) -> None:
        super().__init__(form)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return self._secrets.clean(super().format(record))


class ConnectorLog(logging.Handler):
    """Keeps lines by connector, cleaned of secrets."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(message)s", secrets))
        self._lines: dict[str, collections.deque[str]] = {}
        self._guard = threading.Lock()

    def install(self) -> None:
        """Listen to what connectors log."""
        logger = logging.getLogger(CONNECTOR_LOG)
        logger.addHandler(self)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)

    def remove(self) -> None:
        """Stop listening."""
        logging.getLogger(CONNECTOR_LOG).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        name = record.name.removeprefix(f"{CONNECTOR_LOG}.")
        line = self.format(record)
        with self._guard:
            self._lines.setdefault(name, collections.deque(maxlen=_KEPT)).append(line)

    def of(self, connector: str, count: int) -> list[str]:
        """The last lines of a connector."""
        with self._guard:
            return list(self._lines.get(connector, ()))[-count:] if count > 0 else []
