"""The locked versions are those that pyproject.toml asks for."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.docs.markdown import ROOT

LOCK = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def locked() -> dict[str, list[str]]:
    """Versions by package; some have one for each version of Python."""
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK, re.MULTILINE):
        versions.setdefault(canonicalize_name(name), []).append(version)
    return versions


def test_every_dependency_is_locked_at_a_version_that_it_allows() -> None:
    pins = locked()
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    requirements = [Requirement(line) for line in wanted]
    unlocked = [
        str(each)
        for each in requirements
        if each.name != PROJECT["name"]
        and not any(each.specifier.contains(version) for version in pins.get(canonicalize_name(each.name), []))
    ]
    assert not unlocked, "run make lock"


def test_the_version_has_one_source() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
