"""Whether two queries come to the same verdict on a row.

What passes is written by a flow's query, and what is rejected by one of its own, which reads the records again, at
another time. A condition that is true now and false then would put a row in both places, or in none. So whatever the
verdict is made of has to depend on the row alone.
"""

from typing import Any

from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.table_source import FORMAT


def unsteady(made: Checked) -> str | None:
    """Why the verdict on a row may differ from one query to the next, and what to do instead; None if it does not.

    Judged by Spark's plan, of which only what the verdict needs counts: other columns may hold what they like. Python
    functions are taken at their word (`asNondeterministic`), and with Spark Connect, which shows no plan, all is.
    """
    verdict = made.verdict
    if not made.may_reject or not isinstance(verdict, ClassicDataFrame):
        return None
    jvm: Any = verdict.sparkSession._jvm
    prune = jvm.org.apache.spark.sql.catalyst.optimizer.ColumnPruning
    plan: Any = prune.apply(prune.apply(verdict._jdf.queryExecution().analyzed()))
    if plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()):
        return (
            "it asks for the current time (or date, user, time zone), which is another one there: compare with a time "
            "of the record, such as its timestamp, or leave rows out by where(...) in the flow"
        )
    if not plan.deterministic():
        return (
            "it uses nondeterministic functions (rand, uuid ...), and gives another result there: compute it from the "
            "row's "
            "own columns (hash), or leave rows out by where(...) in the flow"
        )
    leaves = plan.collectLeaves()
    names = [leaves.apply(number).toString().strip() for number in range(leaves.size())]
    if any(name.startswith("RelationV2") and name.endswith(f" {FORMAT}") for name in names):
        return (
            "it comes after a join with table(...), which may have changed by then: check the rows in a view before "
            "the join, and filter by the joined columns with where(...) in the flow, or count and leave out rows by "
            "expect_in(..., otherwise='drop')"
        )
    return None
