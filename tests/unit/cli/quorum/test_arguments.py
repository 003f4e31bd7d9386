"""Arguments of `ottla quorum`, and which directory of a node they mean."""

from uuid import UUID

import click
import pytest

from ottla.admin import QuorumReplica
from ottla.cli.app import run
from ottla.cli.quorum.commands import _directory, _listener
from ottla.cli.terminal import exits
from ottla.cli.terminal.exits import CommandFailed

ONE, OTHER = UUID(int=5), UUID(int=6)


def replica(node: int, directory_id: UUID | None) -> QuorumReplica:
    return QuorumReplica(node, directory_id, 0, 0, None, None, ())


def test_listeners_are_given_as_in_kafkas_settings() -> None:
    assert [str(_listener(text)) for text in ("CONTROLLER://c3:9093", "C://[::1]:1")] == [
        "CONTROLLER://c3:9093",
        "C://[::1]:1",
    ]


@pytest.mark.parametrize("text", ["c3:9093", "CONTROLLER://c3", "CONTROLLER://:9093", "://c3:9093", "C://c3:99999"])
def test_other_listeners_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quorum", "add", "3", "--listener", text]) == exits.USAGE
    assert f"a listener is given as NAME://HOST:PORT, such as CONTROLLER://c3:9093, not {text!r}" in (
        capsys.readouterr().err
    )


def test_a_node_is_known_by_its_only_directory() -> None:
    assert _directory(3, None, [replica(1, OTHER), replica(3, ONE)], "voter") == ONE
    assert _directory(3, "AAAAAAAAAAAAAAAAAAAABg", [], "voter") == OTHER
    with pytest.raises(CommandFailed, match="node 3 is no voter of the quorum; there are: 1"):
        _directory(3, None, [replica(1, OTHER)], "voter")
    with pytest.raises(CommandFailed, match="--directory-id: one of AAAAAAAAAAAAAAAAAAAABQ, AAAAAAAAAAAAAAAAAAAABg"):
        _directory(3, None, [replica(3, OTHER), replica(3, ONE)], "voter")
    with pytest.raises(CommandFailed, match="name the directory of node 3 with --directory-id, which is in its meta"):
        _directory(3, None, [replica(3, None)], "voter")
    for wrong in ("abc", "AAAA AAAA", "ä"):
        with pytest.raises(click.UsageError, match="a directory id is 22 letters and digits"):
            _directory(3, wrong, [], "voter")
