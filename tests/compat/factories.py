"""Types of the fixtures that make topics and names."""

from collections.abc import Callable

NewTopicFactory = Callable[..., str]
"""`new_topic(partitions=1, **{"cleanup.policy": "compact"})` creates a topic and returns its name."""

NewNameFactory = Callable[[], str]
"""`new_name()` returns a name for a topic or a group that nothing else uses."""
