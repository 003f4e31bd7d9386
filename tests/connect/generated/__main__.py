"""Plans from seeds, carried out: `python -m tests.connect.generated --database mariadb --seeds 0:50`.

A seed that fails is run again by the line that it prints. `--show` prints a plan's statements and runs nothing.
"""

import argparse
import time
import traceback
from contextlib import ExitStack

from tests.connect.generated.plan import Kill, Plan, Statement, make_plan
from tests.connect.generated.running import Stand, carry_out, stand


def main() -> int:
    """Returns 1 if a seed has failed."""
    options = _options()
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last or int(first) + 1))
    plans = [
        make_plan(seed, options.database, statements=options.statements, kills=options.kills, biggest=options.biggest)
        for seed in seeds
    ]
    if options.show:
        for plan in plans:
            print("\n".join(shown(plan)))
        return 0
    failed = 0
    with ExitStack() as stack:
        where: Stand | None = None
        for plan in plans:
            where = where or stack.enter_context(stand(options.database))
            began = time.monotonic()
            try:
                outcome = carry_out(plan, where)
            except Exception:  # the other seeds are run, on another stand
                problems, what = [traceback.format_exc(), where.worker.output[-3000:]], "not carried out"
                where = None
                stack.pop_all().close()
            else:
                problems, what = outcome.problems(), str(outcome)
            line = how_to_rerun(plan, options.statements, options.kills, options.biggest)
            print(f"{line}: {what}, {time.monotonic() - began:.1f} s, {len(problems)} problems", flush=True)
            print("\n".join(problems[: options.problems]), end="\n" if problems else "", flush=True)
            failed += bool(problems)
    return int(failed > 0)


def how_to_rerun(plan: Plan, statements: int, kills: int, biggest: int) -> str:
    """A command line."""
    return (
        f"python -m tests.connect.generated --database {plan.database} --seeds {plan.seed} "
        f"--statements {statements} --kills {kills} --biggest {biggest}"
    )


def shown(plan: Plan) -> list[str]:
    """A plan's steps, a line each."""
    lines = []
    for step in [*plan.before, *plan.steps]:
        if isinstance(step, Statement):
            lines.append(f"{step.session}: {step.sql}")
        else:
            lines.append(f"-- kill {step.victim} after {step.pause_s} s" if isinstance(step, Kill) else "-- wait")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.connect.generated", description=__doc__)
    parser.add_argument("--database", choices=("postgres", "mariadb"), default="postgres")
    parser.add_argument("--seeds", default="0:1", help="N or FROM:TO")
    parser.add_argument("--statements", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--biggest", type=int, default=3000, help="rows of the largest transactions")
    parser.add_argument("--problems", type=int, default=10, help="how many are printed of a seed")
    parser.add_argument("--show", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
