"""Threads that may wait for a disk, apart by what they do, so that nothing waits behind something else's disk."""

from concurrent.futures import ThreadPoolExecutor


class DiskThreads:
    """Started when first needed."""

    def __init__(self) -> None:
        self.reads = ThreadPoolExecutor(4, thread_name_prefix="ottla read")
        """Read records for clients."""
        self.searches = ThreadPoolExecutor(2, thread_name_prefix="ottla search")
        """For offsets by time."""
        self.loading = ThreadPoolExecutor(4, thread_name_prefix="ottla load")
        """Read what coordinators keep, when they take a partition over."""
        self.creations = ThreadPoolExecutor(1, thread_name_prefix="ottla create")
        """Make the files of new partitions."""
        self.checkpoints = ThreadPoolExecutor(1, thread_name_prefix="ottla checkpoint")
        self.deletions = ThreadPoolExecutor(1, thread_name_prefix="ottla delete")
        """Delete files that belong to nothing any longer."""

    def close(self) -> None:
        """Wait for what is under way."""
        for threads in vars(self).values():
            threads.shutdown()
