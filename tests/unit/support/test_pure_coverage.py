"""The check behind `make coverage`."""

import tomllib
from typing import Any

import pytest
from tests.support.pure_coverage import REPOSITORY, Covered, covered, pure_packages, thresholds, verdict

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def file(lines: int, missing: list[int], branches: int = 0, untaken: list[tuple[int, int]] | None = None) -> Any:
    """A file in the report of coverage."""
    summary = {
        "num_statements": lines,
        "num_branches": branches,
        "missing_lines": len(missing),
        "missing_branches": len(untaken or []),
    }
    return {"summary": summary, "missing_lines": missing, "missing_branches": untaken or []}


REPORT = {
    "files": {
        "src/ottla/share/window.py": file(90, [7], 10, [(6, 7), (8, -1)]),
        "src/ottla/share/state/a.py": file(100, []),
        "src/ottla/share_partitions/reads.py": file(50, [1, 2]),
        "src/ottla/ids.py": file(24, []),
    }
}


def test_a_package_has_its_files_and_those_of_its_subpackages() -> None:
    assert covered("ottla.share", REPORT) == Covered(200, 3, ("src/ottla/share/window.py: 7, 8->exit",))


def test_a_module_can_be_pure_alone() -> None:
    assert covered("ottla.ids", REPORT) == Covered(24, 0, ())


def test_100_percent_is_everything() -> None:
    assert Covered(10_000, 1, ()).percent == 99
    assert Covered(10_000, 0, ()).percent == 100


@pytest.mark.parametrize(
    ("found", "least", "reason"),
    [
        (Covered(100, 0, ()), 100, None),
        (Covered(100, 2, ()), 98, None),
        (Covered(100, 3, ()), 98, "97 % of lines and branches are covered, and 98 % have to be"),
        (Covered(100, 1, ()), 98, None),
        (Covered(0, 0, ()), 100, "no test imports it"),
    ],
)
def test_what_is_refused(found: Covered, least: int, reason: str | None) -> None:
    refused = verdict("ottla.share", found, least)
    assert (refused is None) if reason is None else (reason in str(refused))


def test_every_pure_package_exists_and_has_a_threshold() -> None:
    missing = [
        name
        for name in pure_packages(PROJECT)
        for place in [REPOSITORY / "src" / name.replace(".", "/")]
        if not place.is_dir() and not place.with_suffix(".py").is_file()
    ]
    assert not missing
    assert set(thresholds(PROJECT)) == set(pure_packages(PROJECT))
    assert all(0 < least <= 100 for least in thresholds(PROJECT).values())


def test_a_threshold_of_what_is_not_pure_is_refused() -> None:
    tool = {"importlinter": PROJECT["tool"]["importlinter"], "ottla": {"coverage": {"ottla.server": 50}}}
    with pytest.raises(ValueError, match=r"names what is no pure package: ottla\.server"):
        thresholds({"tool": tool})
