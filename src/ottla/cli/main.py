"""Entry of the `ottla` command.

`ottla serve` is the one command whose start-up time counts, so it is split off before click (about 25 ms) is imported;
everything else goes to the click application.
"""

import os
import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command in `sys.argv`; returns the exit code (see `ottla.cli.terminal.exits`)."""
    _replace_closed_streams()
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:  # while it was still being imported
        return INTERRUPTED


def _replace_closed_streams() -> None:
    """Open /dev/null for closed standard streams: otherwise the next file opened, such as a log, would take their
    place.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from ottla.cli.serve import serve

        return serve(arguments[1:])

    from ottla.cli.app import run_program

    return run_program(arguments)


if __name__ == "__main__":
    sys.exit(main())
