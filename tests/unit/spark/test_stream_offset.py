import json
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.offsets import Partition
from ottla.spark.stream_offset import Cut, StreamOffset

ID, OTHER = UUID(int=7), UUID(int=8)
topics = st.sampled_from(["a", "b.c", "id", "flights_2"])
offsets = st.dictionaries(st.builds(Partition, topics, st.integers(0, 3)), st.integers(0, 1 << 60))
cuts = st.builds(Cut, st.integers(0, 9), st.none() | st.integers(1, 9))


@given(offsets, st.dictionaries(topics, st.uuids()), cuts)
def test_what_is_written_into_the_checkpoint_is_read_back(
    found: dict[Partition, int], ids: dict[str, UUID], cut: Cut
) -> None:
    written = StreamOffset(found, ids, cut)
    assert StreamOffset.parse(json.loads(json.dumps(written.as_json()))) == written


def test_topics_are_written_as_sparks_own_source_does() -> None:
    written = StreamOffset({Partition("t", 1): 7, Partition("t", 0): 3}, {"t": ID}, Cut(6, None)).as_json()
    assert written == {"t": {"0": 3, "1": 7}, "#": {"ids": {"t": ID.hex}, "minPartitions": 6}}


def test_a_checkpoint_of_sparks_own_source_is_read() -> None:
    assert StreamOffset.parse({"t": {"0": 3}}) == StreamOffset({Partition("t", 0): 3})


def test_a_topic_with_another_id_is_another_topic() -> None:
    known = StreamOffset({}, {"same": ID, "made again": ID, "without": ID})
    assert known.replaced({"same": ID, "made again": OTHER, "new": OTHER}) == {"made again"}
