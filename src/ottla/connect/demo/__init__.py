"""`ottla connect demo`: a database captured to topics, joined and summed up on Spark, and written to another database.

    shop: customers, orders ─▶ postgres-source ─▶ topics ─▶ sales.py on Spark ─▶ topic ─▶ relational-sink ─▶ sales

Halfway everything is killed. `story.py` has the order of events.
"""
