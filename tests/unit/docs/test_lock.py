"""The locked versions are those that pyproject.toml asks for."""

import re
import tomllib
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.docs.markdown import ROOT

from ottla.cli.demo.commands import CONSOLE_MODULES, MODULES

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


def extra_packages(extra: str) -> set[str]:
    """The packages that `pip install ottla[extra]` names, those of the extras it includes among them."""
    packages: set[str] = set()
    for each in map(Requirement, PROJECT["optional-dependencies"][extra]):
        included = each.extras if each.name == PROJECT["name"] else ()
        packages.add(canonicalize_name(each.name))
        packages.update(*map(extra_packages, included))
    return packages


def test_the_extra_of_the_demo_installs_what_the_demo_looks_for() -> None:
    distributions = packages_distributions()
    asked = {canonicalize_name(distributions[module][0]) for module in (*MODULES, *CONSOLE_MODULES)}
    assert asked <= extra_packages("demo")


def test_the_version_has_one_source() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
