"""A pytest plugin: several workers import every test at once, so they share the work, and leave out what is needless.

In a fresh clone that was 49 s of processor time for each: 44 % of it went into asserts that pytest rewrites, most of
them of Ottla's own modules; a quarter into the garbage collector, which finds nothing among modules and tests that all
stay; and a quarter into compiling modules and into reading their constants for Hypothesis, which both keep in files.
"""

import compileall
import gc
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pytest
from _pytest.assertion import rewrite
from hypothesis.internal.constants_ast import constants_from_module

_Each = TypeVar("_Each")
_PACKAGE: Final = Path(__file__).resolve().parents[2] / "src" / "ottla"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Import Ottla's own modules as any program does.

    Pytest rewrites the asserts of all packages that bring a plugin, as Ottla does for its users. Here, that is fourteen
    hundred modules, compiled a second time beside what the tests' processes need.
    """
    hook = config.pluginmanager.rewrite_hook
    if isinstance(hook, rewrite.AssertionRewritingHook):  # not where --assert=plain is given
        hook._must_rewrite.discard("ottla")
        hook._marked_for_rewrite_cache.clear()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage meanwhile, and have later collections pass over what stays to the end."""
    gc.disable()
    try:
        _compile_a_share(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter free everything as it ends: libraries in C++ report what is left."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Read the constants of a share of the modules, before Hypothesis asks for those of all."""
    for name in _share(config, sorted(name for name in sys.modules if name.startswith("ottla."))):
        constants_from_module(sys.modules[name])


def _compile_a_share(config: pytest.Config) -> None:
    """Compile some of what all workers are about to import, so that they find the rest compiled."""
    if sys.dont_write_bytecode:
        return
    for file in _share(config, sorted(_PACKAGE.rglob("*.py"))):
        compileall.compile_file(file, quiet=2)
    roots = [Path(each.partition("::")[0]) for each in config.args]
    for file in _share(config, sorted(file for root in roots for file in root.rglob("test_*.py"))):
        _rewrite(file.absolute(), config)


def _rewrite(file: Path, config: pytest.Config) -> None:
    """Write a file of tests with its asserts rewritten, as `AssertionRewritingHook.exec_module` does."""
    state = config.stash[rewrite.assertstate_key]
    directory = rewrite.get_cache_dir(file)
    compiled = directory / (file.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(file, compiled) is None and rewrite.try_makedirs(directory):
        stat, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(state, code, stat, compiled)


def _share(config: pytest.Config, everything: Sequence[_Each]) -> Sequence[_Each]:
    """This worker's part of what all workers need; nothing in a run of one process."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return ()
    return everything[int(worker["workerid"].removeprefix("gw")) % worker["workercount"] :: worker["workercount"]]
