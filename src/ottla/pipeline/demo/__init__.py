"""`ottla demo`: real flights through the log and Spark, and out again."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; `argv` without the program's name. Gives the exit code: 0, 1 failed, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    try:
        from ottla.pipeline.demo.run import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "duckdb", "matplotlib"):
            raise
        print(f"The demo needs {error.name}, which comes with: pip install 'ottla[demo]'", file=sys.stderr)
        return 1
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla demo",
        description="Send 336,776 real flights and the weather they met through the log and a job on PySpark.",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("ottla-data/demo"),
        metavar="DIR",
        help="where log, checkpoints and results are kept; emptied first (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="use this running broker, with topics named ottla-demo-..., rather than one of its own",
    )
    parser.add_argument(
        "--share", type=_share, default=1.0, metavar="SHARE", help="only the first part of the year, such as 0.1"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the plot in a browser")
    parser.add_argument("--stay", action="store_true", help="leave the broker running at the end, until Ctrl-C")
    replay = parser.add_argument_group("replay", "the job once more from the beginning of the log, for some flights")
    replay.add_argument("--replay", action="store_true", help="only replay what an earlier demo left in the log")
    replay.add_argument("--carrier", metavar="CODE", help="such as UA")
    replay.add_argument("--dest", metavar="CODE", help="airport of arrival, such as ORD (the default)")
    replay.add_argument("--month", type=int, choices=range(1, 13), metavar="1..12")
    return parser


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1")
    return share
