"""Asking a worker's REST API, Kafka Connect's alike."""

import json
import urllib.error
import urllib.request
from typing import Any


class RestError(Exception):
    """An answer that is an error: its HTTP status, and its body from JSON (the text, if it is none)."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body

    @property
    def message(self) -> str:
        """The worker's sentence."""
        if isinstance(self.body, dict) and "message" in self.body:
            return str(self.body["message"])
        return f"the worker answered {self.status}: {' '.join(str(self.body or 'nothing').split())[:200]}"


def ask(url: str, method: str, path: str, body: Any = None, *, within_s: float) -> Any:
    """One request; its answer from JSON, None if it has none.

    Raises RestError; OSError or ValueError if no worker answers at `url`.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:
            text = answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            raise RestError(refused.code, _error_body(refused.read())) from None
    return json.loads(text) if text else None


def _error_body(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")
