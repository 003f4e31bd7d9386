"""`ottla serve`: start one broker. Parsed by hand, because importing a parser would show in the start-up time."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.cli.terminal import exits, suggest

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
FLAGS: Final = ("--strict", "--allow-insecure")
LOG_FORMATS: Final = ("text", "json")
OPTIONS: Final = ("--override", "--log-level", "--log-format", *FLAGS, "--help")

HELP: Final = """\
Usage: ottla serve [SERVER.PROPERTIES] [--override KEY=VALUE]... [--log-level LEVEL] [--strict] [--allow-insecure]

  Start a broker. Settings have the names and values of Apache Kafka's broker settings.
  Without any: node 1, PLAINTEXT://127.0.0.1:9092, data under ./ottla-data.

  SERVER.PROPERTIES          a file of KEY=VALUE lines
  --override KEY=VALUE       a setting that wins over the file; may be given many times
  --log-level LEVEL          debug, info (default), warning or error; the log goes to standard error
  --log-format FORMAT        text (default) or json: an object a line
  --strict                   refuse settings that do not exist, instead of warning of them
  --allow-insecure           start although settings ask for protection that Ottla lacks, such as another authorizer;
                             every client that reaches the broker's ports may then do everything in plain text, and send
                             a standalone broker the requests that only brokers send each other
  --help                     this text

  SIGTERM and Ctrl-C stop the broker cleanly.

Examples:
  ottla serve
  ottla serve server.properties --override log.dirs=/data/a,/data/b
  ottla serve --override listeners=PLAINTEXT://0.0.0.0:9092 --override advertised.listeners=PLAINTEXT://box:9092
"""


class UsageProblem(Exception):
    """The arguments of `serve` are wrong; the text explains how."""


@dataclass(frozen=True, slots=True)
class ServeArguments:
    """What `ottla serve` was asked for."""

    properties_file: Path | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    log_level: str = "info"
    log_format: str = "text"
    strict: bool = False
    allow_insecure: bool = False
    help_wanted: bool = False


def parse_arguments(arguments: list[str]) -> ServeArguments:
    """Parse what follows `ottla serve`.

    Options take their value as `--option value` or `--option=value`; `--` ends the options. A setting overridden twice
    keeps the last value. Raises `UsageProblem` for anything else.
    """
    properties_file: Path | None = None
    overrides: dict[str, str] = {}
    log_level, log_format = "info", "text"
    flags: set[str] = set()
    only_files = False
    rest = iter(arguments)
    for argument in rest:
        if only_files or not argument.startswith("-") or argument == "-":
            if properties_file is not None:
                raise UsageProblem(f"only one properties file can be given, not also {argument!r}")
            properties_file = Path(argument)
            continue
        if argument == "--":
            only_files = True
            continue
        option, has_value, value = argument.partition("=")
        if option in ("--help", "-h"):
            return ServeArguments(help_wanted=True)
        if option not in OPTIONS:
            raise UsageProblem(f"no such option: {option}{suggest.did_you_mean(option, OPTIONS)}")
        if option in FLAGS:
            if has_value:
                raise UsageProblem(f"{option} takes no value")
            flags.add(option)
            continue
        if not has_value:
            following = next(rest, None)
            if following is None:
                raise UsageProblem(f"{option} needs a value")
            value = following
        if option == "--override":
            key, has_equals, setting = value.partition("=")
            if not has_equals or not key.strip():
                raise UsageProblem(f"--override takes KEY=VALUE, not {value!r}")
            overrides[key.strip()] = setting.strip()
        elif option == "--log-format":
            log_format = value.lower()
            if log_format not in LOG_FORMATS:
                raise UsageProblem(f"--log-format is one of {', '.join(LOG_FORMATS)}, not {value!r}")
        else:
            log_level = value.lower()
            if log_level not in LOG_LEVELS:
                raise UsageProblem(f"--log-level is one of {', '.join(LOG_LEVELS)}, not {value!r}")
    return ServeArguments(
        properties_file, overrides, log_level, log_format, "--strict" in flags, "--allow-insecure" in flags
    )


def serve(arguments: list[str]) -> int:
    """Run a broker until a signal stops it; returns the exit code."""
    try:
        wanted = parse_arguments(arguments)
    except UsageProblem as problem:
        print(f"ottla serve: {problem}\nTry 'ottla serve --help'.", file=sys.stderr)
        return exits.USAGE
    if wanted.help_wanted:
        print(HELP, end="")
        return exits.OK
    if wanted.properties_file is not None and not wanted.properties_file.is_file():
        print(f"ottla serve: there is no properties file {wanted.properties_file}", file=sys.stderr)
        return exits.FAILED

    from ottla.cli.terminal.log_lines import begin_log

    begin_log(wanted.log_level, wanted.log_format)
    from ottla.broker import main as run_broker

    return run_broker(
        wanted.properties_file, wanted.overrides, strict=wanted.strict, allow_insecure=wanted.allow_insecure
    )
