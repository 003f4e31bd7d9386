"""Entry of the `ottla` command.

`ottla serve` is the one command whose start-up time counts, so it is split off before click (about 25 ms) is imported;
everything else goes to the click application.
"""

import sys


def main() -> int:
    """Run the command in `sys.argv`; returns the exit code (see `ottla.cli.exits`)."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from ottla.cli.serve import serve

        return serve(arguments[1:])

    from ottla.cli.app import run_program

    return run_program(arguments)


if __name__ == "__main__":
    sys.exit(main())
