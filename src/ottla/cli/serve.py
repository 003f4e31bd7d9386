"""`ottla serve`: start one broker. Parsed by hand, because importing a parser would show in the start-up time."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.terminal import exits, suggest

if TYPE_CHECKING:
    from ottla.broker import Broker
    from ottla.processes import Companion

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
CORES: Final = "--cores"
MOST_CORES: Final = 256
FLAGS: Final = ("--strict", "--allow-insecure", "--console")
LOG_FORMATS: Final = ("text", "json")
OPTIONS: Final = ("--override", "--log-level", "--log-format", "--console-port", CORES, *FLAGS, "--help")
CONSOLE_PORT: Final = 8080
_THIS_MACHINE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where this machine reaches a listener on all interfaces."""
CONSOLE_MODULES: Final = ("starlette", "uvicorn", "jinja2", "confluent_kafka", "click")

HELP: Final = """\
Usage: ottla serve [SERVER.PROPERTIES] [--override KEY=VALUE]... [--log-level LEVEL] [--strict] [--allow-insecure]
                   [--cores N] [--console] [--console-port PORT]

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
  --cores N                  run N brokers as one unit, one for each core (auto: for all that this process may use),
                             in one rack; node.id, ports and directories count up. Any of them answers at the address in
                             listeners, their own ports follow it. They have a controller of their own, unless the
                             settings name other controllers or ZooKeeper
  --console                  open the console for the browser beside it, for this machine only (see ottla console)
  --console-port PORT        the same, at another port than 8080; 0 takes a free one
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
    console_port: int | None = None
    """None: without the console."""
    cores: int = 1
    """How many brokers run as one unit."""
    help_wanted: bool = False


def parse_arguments(arguments: list[str]) -> ServeArguments:
    """Parse what follows `ottla serve`.

    Options take their value as `--option value` or `--option=value`; `--` ends the options. A setting overridden twice
    keeps the last value. Raises `UsageProblem` for anything else.
    """
    properties_file: Path | None = None
    overrides: dict[str, str] = {}
    log_level, log_format = "info", "text"
    console_port: int | None = None
    cores = 1
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
        elif option == CORES:
            cores = _cores(value)
        elif option == "--console-port":
            if not value.isdecimal() or int(value) > 65535:
                raise UsageProblem(f"--console-port is 0 to 65535, not {value!r}")
            console_port = int(value)
        elif option == "--log-format":
            log_format = value.lower()
            if log_format not in LOG_FORMATS:
                raise UsageProblem(f"--log-format is one of {', '.join(LOG_FORMATS)}, not {value!r}")
        else:
            log_level = value.lower()
            if log_level not in LOG_LEVELS:
                raise UsageProblem(f"--log-level is one of {', '.join(LOG_LEVELS)}, not {value!r}")
    if console_port is None and "--console" in flags:
        console_port = CONSOLE_PORT
    if cores > 1 and console_port is not None:
        raise UsageProblem(f"--console is for one broker; run `ottla console` beside those of {CORES}")
    return ServeArguments(
        properties_file,
        overrides,
        log_level,
        log_format,
        "--strict" in flags,
        "--allow-insecure" in flags,
        console_port,
        cores,
    )


def _cores(text: str) -> int:
    if text == "auto":
        import os

        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CORES:
        raise UsageProblem(f"{CORES} is auto, or 1 to {MOST_CORES}, not {text!r}")
    return int(text)


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

    if wanted.console_port is not None and (missing := _missing_module()) is not None:
        print(f"ottla serve: --console needs {missing}: pip install 'ottla[console]'", file=sys.stderr)
        return exits.FAILED

    from ottla.cli.terminal.log_lines import begin_log

    begin_log(wanted.log_level, wanted.log_format)
    if wanted.cores > 1:
        from ottla.cli.cores.supervisor import serve_cores

        flags = [*(("--strict",) if wanted.strict else ()), *(("--allow-insecure",) if wanted.allow_insecure else ())]
        return serve_cores(
            wanted.properties_file,
            wanted.overrides,
            wanted.cores,
            log_level=wanted.log_level,
            log_format=wanted.log_format,
            flags=flags,
        )
    from ottla.broker_process import main as run_broker

    console = None if wanted.console_port is None else _Console(wanted.console_port)
    code = run_broker(
        wanted.properties_file,
        wanted.overrides,
        strict=wanted.strict,
        allow_insecure=wanted.allow_insecure,
        ready=None if console is None else console.open,
    )
    if console is not None:
        console.wait()
    return code


def _missing_module() -> str | None:
    from importlib.util import find_spec

    return next((name for name in CONSOLE_MODULES if find_spec(name) is None), None)


class _Console:
    """`ottla console` as a process of its own while a broker serves: what it renders takes no time of the broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._companion: Companion | None = None

    def open(self, broker: "Broker") -> Callable[[], None]:
        """Open it, once the broker serves; returns what closes it. A broker serves also without its console."""
        import logging

        from ottla.processes import console_beside

        log = logging.getLogger(__name__)
        plain = next((each for each in broker.config.listeners if each.security_protocol == "PLAINTEXT"), None)
        if plain is None:
            log.error(
                "there is no console: without a listener in plain text it needs properties of a client; run "
                "`ottla console --login --bootstrap ... --command-config FILE` beside the broker"
            )
            return lambda: None
        host = _THIS_MACHINE.get(plain.host, plain.host)
        address = f"{f'[{host}]' if ':' in host else host}:{broker.ports[plain.name]}"
        self._companion = console_beside(address, self._port)
        try:
            self._companion.start()
        except OSError as problem:
            log.error("there is no console: it cannot be started: %s", problem.strerror)
        return self._companion.stop

    def wait(self) -> None:
        """Wait until it has ended."""
        if self._companion is not None:
            self._companion.wait()
