"""`ottla storage` on files: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.terminal import exits

CLUSTER = "b3R0bGFfZ2VudWluZV8wMQ"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "server.properties"
    found.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://h:9093\n"
        f"controller.quorum.bootstrap.servers=h:9093\nlog.dirs={tmp_path}/data\n"
    )
    return found


def test_a_directory_is_formatted_and_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["-c", str(file)]
    assert run(["storage", "info", *where]) == exits.FAILED
    assert capsys.readouterr().out.endswith("\tdoes not exist\n")
    assert run(["storage", "format", *where, "-t", CLUSTER, "--standalone", "-r", "4.1", "--json"]) == exits.OK
    formatted = capsys.readouterr()
    (row,) = json.loads(formatted.out)
    assert (row["directory"], row["kind"]) == (str(file.parent / "data"), "dynamic metadata voter directory")
    assert formatted.err == "1 directory formatted with metadata.version 4.1-IV1\n"
    assert run(["storage", "info", *where]) == exits.OK
    assert capsys.readouterr().out == f"{row['directory']}\t{CLUSTER}\t1\t{row['directory_id']}\t-\n"
    assert run(["storage", "format", *where, "-t", CLUSTER, "-s", "-g"]) == exits.OK
    assert capsys.readouterr().err == "all directories are formatted already\n"
    assert run(["storage", "info", *where, "--override", "node.id=2"]) == exits.FAILED
    assert "belongs to node 1, not 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--standalone", "--no-initial-controllers"],
        ["--standalone", "--feature", "share.version"],
        ["--standalone", "--feature", "share.version=one"],
        ["--standalone", "--override", "node.id"],
    ],
)
def test_wrong_usage_has_its_own_exit_code(file: Path, options: list[str]) -> None:
    assert run(["storage", "format", "-c", str(file), "-t", CLUSTER, *options]) == exits.USAGE
    assert list(file.parent.iterdir()) == [file]


def test_a_directory_that_cannot_be_made_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "data").touch()
    assert run(["storage", "format", "-c", str(file), "-t", CLUSTER, "-s"]) == exits.FAILED
    assert f"ottla: Not a directory: '{file.parent}/data/meta.properties'" in capsys.readouterr().err


def test_ids_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["storage", "random-uuid"]) == exits.OK
    assert len(capsys.readouterr().out) == 23
