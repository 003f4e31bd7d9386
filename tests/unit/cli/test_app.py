"""The frame of the command line: help, suggestions and exit codes, without any broker."""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.cli.app import NOUNS, application, run
from ottla.cli.brokers import client
from ottla.cli.serve import parse_arguments
from ottla.cli.terminal import exits


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Point every command at a port where nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTTLA_BOOTSTRAP", f"127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setattr(client, "STARTING_S", 0.0)
        yield


def test_help_names_every_noun(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == exits.OK
    shown = capsys.readouterr().out
    assert all(f"  {noun}" in shown for noun in NOUNS)
    assert "130 stopped by Ctrl-C" in shown


@pytest.mark.parametrize("noun", [noun for noun in NOUNS if noun != "serve"])
def test_every_noun_has_help(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([noun, "--help"]) == exits.OK
    assert capsys.readouterr().out.lower().startswith(f"usage: ottla {noun}")


def verbs() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(application)
    for noun in NOUNS:
        group = application.get_command(context, noun)
        if isinstance(group, click.Group):
            for name in group.list_commands(context):
                verb = group.get_command(context, name)
                assert verb is not None
                yield f"ottla {noun} {name}", verb
        elif group is not None:
            yield f"ottla {noun}", group


@pytest.mark.parametrize(("name", "verb"), [pytest.param(name, verb, id=name) for name, verb in verbs()])
def test_every_verb_has_help_and_every_option_is_explained(name: str, verb: click.Command) -> None:
    assert verb.help
    for parameter in verb.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts
    shown = verb.get_help(click.Context(verb, info_name=name))
    assert " RANGE" not in shown, "a range has a name of its own, such as N or SECONDS"


@pytest.mark.parametrize("noun", ["topic", "log", "perf", "connect", "pipeline"])
def test_no_sentence_of_help_is_cut_off(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([noun, "--help"]) == exits.OK
    assert "..." not in capsys.readouterr().out.split("Commands:")[1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == exits.OK
    assert capsys.readouterr().out.startswith("ottla 0.")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topci", "list"], "no such command: 'topci'; did you mean 'topic'?"),
        (["topic", "lst"], "no such command: ottla topic lst; did you mean 'list'?"),
        (["topic", "zzzz"], "there are create, list, describe"),
        (["topic", "list", "--jsn"], "--json"),
        (["topic", "create"], "missing argument 'NAME...'"),
        (["topic", "alter", "a"], "name a change"),
        (["topic", "create", "a", "-c", "x"], "'x' is not KEY=VALUE"),
        (["topic", "create", "a", "-p", "2", "--replica-assignment", "1,1"], "already sets the numbers"),
        (["topic", "trim", "a"], "one of --before-offset, --before-time, --all"),
        (["topic", "trim", "a", "--before-offset", "3"], "add --partition"),
        (["produce", "t", "--json", "--key-separator", ":"], "--json lines carry"),
        (["produce", "t", "--header", "x"], "is not NAME=VALUE"),
        (["produce", "t", "--timestamp", "soon"], "is not a time"),
        (["consume", "t", "--offset", "x"], "--offset is beginning, end"),
        (["consume", "t", "--offset", "1", "--since", "10m"], "exclude one another"),
        (["consume", "t", "--since", "soon"], "is not a time"),
        (["consume", "t", "-g", "g", "-o", "3"], "ottla group seek g"),
        (["group", "seek", "g", "--to-earliest"], "name what to move"),
        (["group", "seek", "g", "-t", "t"], "name the target"),
        (["group", "seek", "g", "-t", "t:x", "--to-latest"], "is not TOPIC or TOPIC:0,2"),
        (["group", "list", "--state", "Stabel"], "did you mean 'Stable'?"),
        (["group", "list", "--state", "zzzz"], "there are PreparingRebalance, CompletingRebalance, Stable"),
        (["share", "list", "--state", "Stabel"], "did you mean 'Stable'?"),
        (["share", "list", "--state", "Rebalancing"], "there are Empty, Stable, Dead"),
        (["streams", "list", "--state", "NotRaedy"], "did you mean 'NotReady'?"),
        (["streams", "describe", "g", "--members", "--topology"], "give one of them"),
        (["config", "set", "topic", "t"], "name a change"),
        (["config", "set", "topic", "t", "a=1", "--unset", "a"], "a is both set and unset"),
        (["config", "get", "tpoic", "t"], "'topic', 'broker', 'group'"),
        (["topic", "list", "--bootstrap", "a:b"], "is not an address such as"),
        (["topic", "list", "-X", "nonsense"], "is not KEY=VALUE"),
        (["topic", "list", "--command-config", "/does/not/exist"], "does not exist"),
        (["--log-level", "debug", "serve"], "log-level"),
        (["--bootstrap", "a:1", "topic", "list"], "options follow the command"),
    ],
)
def test_wrong_usage(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == exits.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ottla: ")
    assert complaint.lower() in err.lower()
    assert "--help'." in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "delete", "t", "--yes"],
        ["produce", "t"],
        ["consume", "t"],
        ["group", "describe", "g"],
        ["config", "get", "broker", "1"],
        ["cluster", "info"],
        ["perf", "latency"],
    ],
)
def test_an_absent_broker_is_reported_at_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == exits.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ottla: no broker answers at 127.0.0.1:")
    assert "ottla serve" in err
    assert err.count("\n") == 1


def test_a_broker_that_is_just_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STARTING_S", 30.0)
    with socket.socket() as starting:
        starting.bind(("127.0.0.1", 0))
        connection = client.Connection(f"127.0.0.1:{starting.getsockname()[1]}")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(starting.getsockname())
        ready = threading.Timer(0.25, starting.listen)
        ready.start()
        connection.reach()
        ready.join()


def test_a_server_that_is_no_broker_is_reported_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert run(["topic", "list", "-b", f"127.0.0.1:{port}", "--request-timeout", "1"]) == exits.FAILED
    assert "does not answer as a Kafka broker" in capsys.readouterr().err


def documented_commands() -> list[str]:
    """The commands on the right of the table "From Kafka's scripts"."""
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    table = text.partition("<!-- kafka-scripts:begin -->")[2].partition("<!-- kafka-scripts:end -->")[0]
    rights = [line.split(" | ", 1)[1] for line in table.strip().splitlines()[2:]]
    return [match for right in rights for match in re.findall(r"`(ottla [^`]*)`", right) if "..." not in match]


def test_the_documented_commands_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "000.log").touch()
    (tmp_path / "server.properties").touch()
    commands = documented_commands()
    assert len(commands) > 25
    for documented in commands:
        noun, *arguments = documented.split()[1:]
        if noun == "serve":
            parse_arguments(arguments)
            continue
        command = application.get_command(click.Context(application), noun)
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), arguments.pop(0))
        assert command is not None
        if noun == "log" and "000.log" not in arguments:
            arguments.append("." if command.name == "strays" else "000.log")
        command.make_context(noun, arguments)


@pytest.mark.parametrize("verb", ["savepoint", "test", "redrive", "run", "status"])
def test_a_missing_package_is_named_with_its_extra(verb: str) -> None:
    """In a process of its own: here the package has been imported."""
    hidden = (
        "import sys\nsys.modules['pyspark'] = None\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Hidden(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pyspark':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "del sys.modules['pyspark']\nsys.meta_path.insert(0, Hidden())\n"
        f"from ottla.cli.app import run\nsys.exit(run(['pipeline', {verb!r}, '--help']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == exits.OK or "extra `pipeline`" in ended.stderr
