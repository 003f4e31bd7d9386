"""What the doctor has to say: a remark for each thing that was looked at. PURE."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """How a thing is."""

    FINE = "ok"
    WARNING = "warning"
    WRONG = "problem"


class Remark(NamedTuple):
    """One thing that was looked at; `advice` where it could be better."""

    verdict: Verdict
    subject: str
    text: str
    advice: str = ""


def fine(subject: str, text: str) -> Remark:
    """Nothing is wrong."""
    return Remark(Verdict.FINE, subject, text)


def warning(subject: str, text: str, advice: str) -> Remark:
    """It works, and may not for long."""
    return Remark(Verdict.WARNING, subject, text, advice)


def wrong(subject: str, text: str, advice: str) -> Remark:
    """It does not work."""
    return Remark(Verdict.WRONG, subject, text, advice)


def worst(remarks: Iterable[Remark]) -> Verdict:
    """The worst verdict; FINE without any."""
    order = list(Verdict)
    return max((remark.verdict for remark in remarks), key=order.index, default=Verdict.FINE)
