"""Names of topics that a job writes."""

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.names import LONGEST_TOPIC, check_topic_names


def test_a_topic_whose_name_is_too_long_by_a_suffix_is_refused() -> None:
    longest = "x" * LONGEST_TOPIC
    check_topic_names([longest, "orders"])
    with pytest.raises(PipelineError, match=r"whose name has 252 characters, and a topic's has at most 249: shorten"):
        check_topic_names(["orders", f"{longest}-v2"])
