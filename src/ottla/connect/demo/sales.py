"""The orders of each customer, kept up to date from captured changes: a job for `ottla pipeline run`.

    shop.public.customers ─▶ present customers ───────┐
    shop.public.orders    ─▶ sum of each change ──────┴─▶ by customer ─▶ sales ─▶ a row of the table, or its end

A changed order subtracts its old values and adds its new ones, so that sums stay right after every update, move to
another customer or delete. That holds only if each change comes once: a lost or doubled one shows forever.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.rows import from_json

CUSTOMER = "STRUCT<id: BIGINT, name: STRING, region: STRING>"
ORDER = "STRUCT<customer_id: BIGINT, status: STRING, amount: STRING>"
AMOUNT = "DECIMAL(12, 2)"

job = Job("sales", on_failure="stop")


@job.view(records=topic("shop.public.customers"))
def customers(records: DataFrame) -> DataFrame:
    """Customers as of each change; null once they are deleted. Those of one customer are in one partition, in order."""
    changes = from_json(_changes(records), f"before {CUSTOMER}, after {CUSTOMER}", keep=("offset",)).rows
    return changes.select(
        F.coalesce("after.id", "before.id").alias("id"),
        F.col("after").alias("customer"),
        F.col("offset").alias("place"),
        *_nothing_ordered(),
    )


@job.view(records=topic("shop.public.orders"))
def orders(records: DataFrame) -> DataFrame:
    """What each change of an order takes from its customer, and what it adds."""
    changes = from_json(_changes(records), f"before {ORDER}, after {ORDER}").rows
    taken = F.struct(F.lit(-1).alias("times"), F.col("before").alias("order"))
    added = F.struct(F.lit(1).alias("times"), F.col("after").alias("order"))
    sides = changes.select(F.inline(F.array(taken, added))).where(F.col("order").isNotNull())
    status, times = F.col("order.status"), F.col("times")
    amount = F.col("order.amount").cast(AMOUNT)
    return sides.select(
        F.col("order.customer_id").alias("id"),
        F.lit(None).cast(CUSTOMER).alias("customer"),
        F.lit(None).cast("BIGINT").alias("place"),
        times.cast("BIGINT").alias("orders"),
        F.when(status == "open", times).otherwise(0).cast("BIGINT").alias("open_orders"),
        F.when(status != "cancelled", times * amount).otherwise(0).cast(AMOUNT).alias("spent"),
    )


@job.flow(customers=customers, orders=orders, to=topic("sales", key="id"), mode="update")
def sales(customers: DataFrame, orders: DataFrame) -> DataFrame:
    """A record for each customer with a change; a tombstone for a deleted one."""
    newest = F.max_by("customer", "place").alias("customer")
    sums = [F.sum(name).alias(name) for name in ("orders", "open_orders", "spent")]
    spent = F.col("spent").cast("STRING").alias("spent")
    row = F.struct("id", "customer.name", "customer.region", "orders", "open_orders", spent)
    return (
        customers.unionByName(orders)
        .groupBy("id")
        .agg(newest, *sums)
        .select("id", F.when(F.col("customer").isNotNull(), F.to_json(row)).alias("value"))
    )


def _changes(records: DataFrame) -> DataFrame:
    """Without the tombstones that follow deletes: the change itself contains the delete."""
    return records.where("value IS NOT NULL")


def _nothing_ordered() -> list[Column]:
    none = F.lit(0)
    return [
        none.cast("BIGINT").alias("orders"),
        none.cast("BIGINT").alias("open_orders"),
        none.cast(AMOUNT).alias("spent"),
    ]
