"""Whether a command of the documentation exists: its program, sub-command and options.

Values are not looked at: pages write `TOPIC` and `...` where readers write their own.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import click

from ottla.cli import serve
from ottla.cli.app import application
from tools.docs.markdown import ROOT

SEPARATORS: Final = frozenset("();<>|&")


class NoSuchCommandError(Exception):
    """A command cannot work as it is written; the text says why."""


def check(line: str) -> int:
    """Check a line of shell; how many of its commands were understood and found to exist.

    Commands other than `ottla`, `make`, `pip` and `python -m` are passed over. Raises NoSuchCommandError.
    """
    checked = 0
    for words in _simple_commands(line):
        program, *arguments = words
        match program.rpartition("/")[2]:
            case "ottla":
                _check_ottla(arguments)
            case "make":
                _check_make(arguments)
            case "pip" | "pip3":
                _check_pip(arguments)
            case "python" | "python3" if arguments[:1] == ["-m"]:
                _check_module(arguments[1:])
            case _:
                continue
        checked += 1
    return checked


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line as words, without assignments of variables before them and without comments."""
    lexer = shlex.shlex(re.sub(r"(^|\s)#(\s.*)?$", "", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # prose with an apostrophe
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= SEPARATORS:
            if command:
                yield command
            command = []
        elif command or not re.fullmatch(r"[A-Z_]+=.*", word):
            command.append(word)


# -- ottla -------------------------------------------------------------------------------------------------------------


def _check_ottla(arguments: Sequence[str]) -> None:
    words = [cleaned for word in arguments if (cleaned := word.strip("[].,"))]
    if words[:1] == ["serve"]:
        _check_options("ottla serve", words[1:], set(serve.OPTIONS) | {"-h"})
        return
    command: click.Command = application
    path = "ottla"
    parameters: list[click.Parameter] = list(command.params)
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if isinstance(command, click.Group) and not word.startswith("-"):
            found = command.get_command(click.Context(command), word)
            if found is None:
                raise NoSuchCommandError(f"`{path}` has no command {word!r}")
            command, path = found, f"{path} {word}"
            parameters += command.params
        else:
            rest.append(word)
    if "--version" in rest or "--help" in rest:
        return
    _check_options(path, rest, _spellings(parameters) | {"--help"}, _with_values(parameters))


def _spellings(parameters: Sequence[click.Parameter]) -> set[str]:
    return {
        name
        for parameter in parameters
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def _with_values(parameters: Sequence[click.Parameter]) -> set[str]:
    options = [parameter for parameter in parameters if isinstance(parameter, click.Option)]
    return {name for option in options if not (option.is_flag or option.count) for name in option.opts}


def _check_options(path: str, words: Sequence[str], known: set[str], take_values: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    rest = iter(words)
    for word in rest:
        name = word.partition("=")[0]
        if not name.startswith("-") or name in ("-", "--"):
            continue
        if name not in known and name[:2] not in known:
            raise NoSuchCommandError(f"`{path}` has no option {name!r}")
        if name in take_values and "=" not in word:
            next(rest, None)


# -- make, pip, python -m ----------------------------------------------------------------------------------------------


@cache
def make_targets() -> frozenset[str]:
    """The targets of the Makefile that `make help` names, and variables that it takes."""
    return frozenset(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _check_make(arguments: Sequence[str]) -> None:
    for word in arguments:
        if "=" not in word and word not in make_targets():
            raise NoSuchCommandError(f"the Makefile has no target {word!r}")


@cache
def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


@cache
def _pip_options(command: str) -> frozenset[str]:
    shown = subprocess.run(
        [sys.executable, "-m", "pip", command, "--help"], capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise NoSuchCommandError(f"pip has no command {command!r}")
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown.stdout))


def _check_pip(arguments: Sequence[str]) -> None:
    """A command of pip; what it installs is this project, or a package on the public index that the project names."""
    if not arguments:  # prose: `pip`
        return
    command, *rest = arguments
    _check_options(f"pip {command}", rest, set(_pip_options(command)))
    known = _project()["optional-dependencies"]
    for word in rest:
        if word.startswith("-") or command != "install":
            continue
        named = re.fullmatch(r"(?P<what>[^\[]*|.*/.*?|\$\(.*\))(\[(?P<extras>[\w,]+)])?", word)
        if named is None:
            raise NoSuchCommandError(f"pip cannot install {word!r}")
        if named["what"] == _project()["name"]:
            raise NoSuchCommandError(
                f"`pip install {word}`: this project is not on a public index; name the wheel or ."
            )
        is_ours = named["what"].startswith((".", "dist/", "$(", "/"))
        for extra in (named["extras"] or "").split(","):
            if is_ours and extra and extra not in known:
                raise NoSuchCommandError(f"`pip install {word}`: there is no extra {extra!r}")
        if not is_ours and not re.search(rf'"{re.escape(named["what"])}\b', str(known).replace("'", '"')):
            raise NoSuchCommandError(f"`pip install {word}`: pyproject.toml does not name that package")


def _check_module(arguments: Sequence[str]) -> None:
    if not arguments:  # prose: `python -m`
        return
    name = arguments[0]
    if name == "pip":
        _check_pip(arguments[1:])
        return
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise NoSuchCommandError(f"there is no module {name!r} to run")
