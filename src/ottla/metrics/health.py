"""Whether a process serves; with the reasons where it does not, and what to do about them."""

import json
from http import HTTPStatus
from typing import Final, NamedTuple

from ottla.metrics.endpoint import Page

JSON: Final = "application/json"


class Health(NamedTuple):
    """What is wrong with a process: `reasons` keep it from its work, `warnings` do not."""

    reasons: list[str]
    warnings: list[str]

    @property
    def is_ready(self) -> bool:
        """Whether it does its work."""
        return not self.reasons

    def page(self) -> Page:
        """As JSON, with the status 503 for a process that is not ready."""
        body = {"ready": self.is_ready, "reasons": self.reasons, "warnings": self.warnings}
        status = HTTPStatus.OK if self.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(f"{json.dumps(body, indent=2)}\n".encode(), JSON, status)
