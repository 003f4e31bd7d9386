"""The one Kafka client of this project: a session without I/O, and two drivers, asyncio and blocking.

    sansio/session.py   PURE: frames, correlation, versions, the steps before the first request
    sansio/handshake.py PURE: those steps: ApiVersions, SASL
    blocking.py         a connection for tools and Spark; pool.py: one per broker, and requests to several at once
    asynchronous.py     a connection for brokers among each other, and for programs with an event loop

Satellites use it where no client library has the call, or the speed.
"""
