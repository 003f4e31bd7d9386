"""The arguments of `ottla serve`, and what it imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.serve import ServeArguments, UsageProblem, parse_arguments, serve
from ottla.cli.terminal import exits


def test_nothing_is_needed() -> None:
    assert parse_arguments([]) == ServeArguments()


def test_file_overrides_and_log_level() -> None:
    parsed = parse_arguments(
        ["--override", "a=1", "server.properties", "--override=b=x=y", "--override", "a=2", "--log-level", "DEBUG"]
    )
    assert parsed == ServeArguments(Path("server.properties"), {"a": "2", "b": "x=y"}, "debug")


def test_flags_take_no_value() -> None:
    parsed = parse_arguments(["--strict", "server.properties", "--allow-insecure"])
    assert parsed == ServeArguments(Path("server.properties"), strict=True, allow_insecure=True)


def test_the_console_and_its_port() -> None:
    assert parse_arguments(["--console"]).console_port == 8080
    assert parse_arguments(["--console-port", "0"]).console_port == 0
    assert parse_arguments(["--console", "--console-port=9000"]).console_port == 9000
    with pytest.raises(UsageProblem, match="0 to 65535"):
        parse_arguments(["--console-port", "-1"])


def test_cores_are_counted_or_all_that_there_are() -> None:
    assert parse_arguments(["--cores", "8"]).cores == 8
    assert parse_arguments(["--cores=auto"]).cores >= 1
    for text in ("0", "257", "many", "-1"):
        with pytest.raises(UsageProblem, match="--cores is auto, or 1 to 256"):
            parse_arguments(["--cores", text])
    with pytest.raises(UsageProblem, match="--console is for one broker"):
        parse_arguments(["--cores", "2", "--console"])


def test_after_two_dashes_everything_is_a_file() -> None:
    assert parse_arguments(["--", "--odd.properties"]).properties_file == Path("--odd.properties")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a", "b"], "only one properties file"),
        (["--overide", "a=1"], "did you mean '--override'"),
        (["--override"], "needs a value"),
        (["--allow-insecure=yes"], "takes no value"),
        (["--override", "a"], "takes KEY=VALUE, not 'a'"),
        (["--override", "=1"], "takes KEY=VALUE"),
        (["--log-level", "loud"], "one of debug, info, warning, error"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageProblem, match=complaint):
        parse_arguments(arguments)
    assert serve(arguments) == exits.USAGE
    assert complaint in capsys.readouterr().err


def test_a_missing_properties_file_is_a_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert serve([str(tmp_path / "none")]) == exits.FAILED
    assert "there is no properties file" in capsys.readouterr().err


def test_help_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(["--help"]) == exits.OK
    assert capsys.readouterr().out.startswith("Usage: ottla serve [SERVER.PROPERTIES]")


def imported_by(*arguments: str) -> set[str]:
    """The top-level modules in a fresh interpreter after one command."""
    program = (
        "import json, sys\n"
        f"sys.argv = ['ottla', *{list(arguments)!r}]\n"
        "from ottla.cli.main import main\n"
        "main()\n"
        "sys.stdout.flush()\n"
        "print(json.dumps(sorted(name.partition('.')[0] for name in sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stderr))


def test_serve_starts_without_the_command_line_libraries() -> None:
    assert not imported_by("serve", "--help") & {"click", "rich", "confluent_kafka", "argparse", "logging"}


def test_help_needs_neither_client_nor_tables() -> None:
    imported = imported_by("--help")
    assert "click" in imported
    assert not imported & {"rich", "confluent_kafka"}
