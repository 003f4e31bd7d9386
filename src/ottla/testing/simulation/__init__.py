"""A whole cluster in one process, over virtual time: every decision follows from a seed.

`Cluster` is public: it runs real brokers and your own asyncio client, with faults that the seed decides.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import Cluster, NotReachedError, Process

__all__ = ["Cluster", "NotReachedError", "Process"]


def __getattr__(name: str) -> Any:
    # The modules of this package need not load a broker for one another.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing.simulation import cluster

    return getattr(cluster, name)
