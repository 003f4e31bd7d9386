"""What a broker measures of itself: requests, topics, groups, its disks and its event loop (`metrics.listeners`).

Most of it is read from what the parts of the broker know anyway, when a scrape asks. Requests are counted as they pass
where metrics are switched on.
"""
