"""How much of the pure packages the unit tests cover: `make coverage` fails where it is less than the threshold.

    python -m tests.support.pure_coverage        the shares of pure packages, and what no test reaches

The pure packages are those of the contract of imports in pyproject.toml (ADR 32). All lines and branches of each have
to be covered, or the share that `[tool.ottla.coverage]` there gives for it.
"""

import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

REPOSITORY: Final = Path(__file__).parents[2]
CONTRACT: Final = "Pure packages touch neither the clock, nor the system, nor the event loop"
COMPLETE: Final = 100


class Covered(NamedTuple):
    """Lines and branches of a package, and how many of them no test reached; by file, the lines to look at."""

    total: int
    missing: int
    places: tuple[str, ...]

    @property
    def percent(self) -> int:
        """Rounded down: 100 is everything."""
        return COMPLETE if not self.total else math.floor(COMPLETE * (self.total - self.missing) / self.total)


def pure_packages(project: Mapping[str, Any]) -> list[str]:
    """The packages and modules that the contract of imports declares pure."""
    contracts = project["tool"]["importlinter"]["contracts"]
    (pure,) = (list(contract["source_modules"]) for contract in contracts if contract["name"] == CONTRACT)
    return pure


def thresholds(project: Mapping[str, Any]) -> dict[str, int]:
    """The share of lines and branches, in percent, that each pure package has to reach."""
    lower: dict[str, int] = project["tool"].get("ottla", {}).get("coverage", {})
    packages = pure_packages(project)
    unknown = sorted(set(lower) - set(packages))
    if unknown:
        raise ValueError(f"[tool.ottla.coverage] names what is no pure package: {', '.join(unknown)}")
    return {package: lower.get(package, COMPLETE) for package in packages}


def covered(package: str, report: Mapping[str, Any]) -> Covered:
    """The coverage of one package, from the report that `coverage json` writes."""
    place = f"src/{package.replace('.', '/')}"
    total = missing = 0
    places: list[str] = []
    for name, file in sorted(report["files"].items()):
        if name != f"{place}.py" and not name.startswith(f"{place}/"):
            continue
        summary = file["summary"]
        total += summary["num_statements"] + summary["num_branches"]
        missing += summary["missing_lines"] + summary["missing_branches"]
        unreached = set(file["missing_lines"])
        lines = [str(line) for line in file["missing_lines"]]
        for begin, end in file["missing_branches"]:
            if not {begin, end} & unreached:
                lines.append(f"{begin}->{end if end > 0 else 'exit'}")
        if lines:
            places.append(f"{name}: {', '.join(lines)}")
    return Covered(total, missing, tuple(places))


def verdict(package: str, found: Covered, least: int) -> str | None:
    """Why the coverage of a package is refused; None if it is not."""
    if not found.total:
        return f"{package}: no test imports it"
    if found.percent < least:
        return f"{package}: {found.percent} % of lines and branches are covered, and {least} % have to be"
    return None


def main() -> int:
    """Print the table, and what is wrong; 1 if anything is."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", "-"]
    printed = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout
    report = json.loads(printed)
    wrong: list[str] = []
    print(f"{'pure package':45}{'lines, branches':>16}{'missing':>9}{'%':>5}{'least':>7}")
    for package, least in thresholds(project).items():
        found = covered(package, report)
        print(f"{package:45}{found.total:16}{found.missing:9}{found.percent:5}{least:7}")
        for place in found.places:
            print(f"    {place}")
        problem = verdict(package, found, least)
        if problem is not None:
            wrong.append(problem)
    print("\n".join(["", f"all of ottla: {report['totals']['percent_covered_display']} %", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
