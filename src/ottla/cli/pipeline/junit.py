"""JUnit's XML for golden tests, as continuous integration reads it. PURE.

<testsuites><testsuite name="flight-delays" tests="2" failures="1" errors="0" time="12.300">
  <testcase classname="flight-delays" name="two-airlines" time="6.200"><failure message="...">...</failure></testcase>
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final
from xml.etree import ElementTree

_FORBIDDEN: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of one case: passed if it has neither a `failure` (lines that show what differs) nor an `error`."""

    name: str
    took_s: float
    failure: Sequence[str] = ()
    error: str | None = None

    @property
    def is_passed(self) -> bool:
        return not self.failure and self.error is None


def to_xml(suite: str, results: Sequence[CaseResult]) -> bytes:
    """A report of one suite, in UTF-8."""
    totals = {
        "name": suite,
        "tests": str(len(results)),
        "failures": str(sum(bool(each.failure) for each in results)),
        "errors": str(sum(each.error is not None for each in results)),
        "skipped": "0",
        "time": f"{sum(each.took_s for each in results):.3f}",
    }
    root = ElementTree.Element("testsuites")
    cases = ElementTree.SubElement(root, "testsuite", _writable(totals))
    for each in results:
        about = {"classname": suite, "name": each.name, "time": f"{each.took_s:.3f}"}
        case = ElementTree.SubElement(cases, "testcase", _writable(about))
        if each.error is not None:
            _add(case, "error", each.error, each.error)
        elif each.failure:
            _add(case, "failure", each.failure[0].strip(), "\n".join(each.failure))
    ElementTree.indent(root)
    report = BytesIO()
    ElementTree.ElementTree(root).write(report, encoding="utf-8", xml_declaration=True)
    return report.getvalue()


def _add(case: ElementTree.Element, kind: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, kind, _writable({"message": message})).text = _without_forbidden(text)


def _writable(attributes: dict[str, str]) -> dict[str, str]:
    return {name: _without_forbidden(value) for name, value in attributes.items()}


def _without_forbidden(text: str) -> str:
    r"""The text with each character that XML forbids written as in Python: `\x00`."""
    return _FORBIDDEN.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
