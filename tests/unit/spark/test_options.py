import pytest

from ottla.spark.errors import OptionError
from ottla.spark.offsets import EARLIEST, LATEST, Partition
from ottla.spark.options import ReadOptions, WriteOptions
from ottla.spark.selection import Assigned, AtTime, Pattern, Selection, Topics

SERVERS = {"kafka.bootstrap.servers": "box:9092"}


def read(options: dict[str, str] | None = None, *, streaming: bool = False) -> ReadOptions:
    return ReadOptions.parse({**SERVERS, "subscribe": "t", **(options or {})}, streaming=streaming)


def test_defaults_are_sparks_own() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.starting, batch.ending) == (EARLIEST, LATEST)
    assert stream.starting == LATEST
    assert stream.fail_on_data_loss
    assert stream.max_offsets_per_trigger is None
    assert not stream.include_headers


def test_names_know_no_case_and_topics_may_be_several() -> None:
    options = ReadOptions.parse({**SERVERS, "SUBSCRIBE": "a, b,a", "maxoffsetspertrigger": "7"}, streaming=True)
    assert options.selection == Topics(("a", "b"))
    assert options.max_offsets_per_trigger == 7


def test_settings_of_the_client_are_handed_through() -> None:
    options = read({"kafka.security.protocol": "SSL"})
    assert dict(options.client) == {"bootstrap.servers": "box:9092", "security.protocol": "SSL"}


def test_offsets_as_json() -> None:
    assert read({"startingOffsets": '{"t": {"0": 23, "1": -2}}'}).starting == {"t": {0: 23, 1: -2}}
    assert read({"endingOffsets": "latest"}).ending == LATEST


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"colour": "red"}, "unknown option 'colour'; known are"),
        ({"startingOffsets": "yesterday"}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": 5}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": {"0": "5"}}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"u": {"0": 1}}'}, r"is for the topics \['u'\], but 'subscribe' names \['t'\]"),
        ({"startingOffsets": "latest"}, "cannot be 'latest' for a batch read"),
        ({"endingOffsets": "earliest"}, "cannot be the earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot be the earliest"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number above 0"),
        ({"maxOffsetsPerTrigger": "many"}, "whole number above 0"),
        ({"failOnDataLoss": "perhaps"}, "must be true or false"),
        ({"subscribe": " , "}, "'subscribe' names the topics"),
        ({"assign": '{"t": [0]}'}, "there are subscribe and assign"),
        ({"startingTimestamp": "yesterday"}, "a time in milliseconds since 1970, it is 'yesterday'"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -5}}'}, "'startingOffsetsByTimestamp' must be JSON"),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "early"}, "is error or latest"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"\(9\) is above 'maxOffsetsPerTrigger' \(8\)"),
        ({"maxTriggerDelay": "soon"}, "must be a duration such as 30s"),
        ({"kafka.enable.auto.commit": "true"}, "cannot be set: offsets live in Spark's checkpoint"),
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers'.*is missing"),
    ],
)
def test_what_cannot_be_used_is_explained(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        read(options)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(OptionError, match=f"'{option}' is for batch reads; a streaming query has no end"):
        read({option: "latest"}, streaming=True)


def test_topics_are_named_matched_or_assigned() -> None:
    def selection(**options: str) -> Selection:
        return ReadOptions.parse({**SERVERS, **options}, streaming=True).selection

    pattern = selection(subscribePattern="flights-.*")
    assert pattern == Pattern("flights-.*")
    assert [topic for topic in ("flights-1", "my-flights-1", "__flights-1") if pattern.matches(topic)] == ["flights-1"]
    assigned = Assigned((Partition("a", 0), Partition("a", 2), Partition("b", 1)))
    assert selection(assign='{"b": [1], "a": [2, 0, 2]}') == assigned
    with pytest.raises(OptionError, match=r"one of 'subscribe' .*; none is there"):
        selection()
    with pytest.raises(OptionError, match="'subscribePattern' is no regular expression"):
        selection(subscribePattern="(")
    for wrong in ("[0]", '{"a": 0}', '{"a": [-1]}', '{"a": ["0"]}', "{}"):
        with pytest.raises(OptionError, match="'assign' must be JSON"):
            selection(assign=wrong)


def test_offsets_are_for_what_is_assigned() -> None:
    options = {**SERVERS, "assign": '{"t": [0, 1]}', "startingOffsets": '{"t": {"0": 5}}'}
    with pytest.raises(OptionError, match="'startingOffsets' is for t-0, but 'assign' names t-0, t-1"):
        ReadOptions.parse(options, streaming=True)


def test_a_time_comes_before_offsets() -> None:
    options = read({"startingOffsets": "earliest", "startingTimestamp": "1000", "endingTimestamp": "2000"})
    assert options.starting == AtTime(1000, None, latest_if_none=False)
    assert options.ending == AtTime(2000, None, latest_if_none=True)
    lenient = read({"startingTimestamp": "1000", "startingOffsetsByTimestampStrategy": "latest"})
    assert lenient.starting == AtTime(1000, None, latest_if_none=True)
    assert read({"startingOffsetsByTimestamp": '{"t": {"0": 7}}'}).starting == AtTime(
        None, {"t": {0: 7}}, latest_if_none=False
    )


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15m", 900), ("1 h", 3600), ("250", 0.25)])
def test_durations_are_written_as_spark_writes_them(text: str, seconds: float) -> None:
    assert read({"maxTriggerDelay": text}, streaming=True).max_trigger_delay_s == seconds


def test_a_group_is_told_of_progress_only_if_it_is_named() -> None:
    assert read().group_id is None
    assert read({"kafka.group.id": "flights"}).group_id == "flights"


def test_before_the_kind_of_query_is_known_only_what_fits_none_is_refused() -> None:
    given = {**SERVERS, "subscribe": "t"}
    latest = ReadOptions.parse({**given, "includeHeaders": "TRUE", "startingOffsets": "latest"}, streaming=None)
    assert latest.include_headers
    assert ReadOptions.parse({**given, "endingOffsets": "latest"}, streaming=None).ending == LATEST
    with pytest.raises(OptionError, match="did you mean 'includeHeaders'"):
        ReadOptions.parse({**given, "includeHeader": "true"}, streaming=None)
    with pytest.raises(OptionError, match="'maxOffsetsPerTrigger' must be a whole number above 0"):
        ReadOptions.parse({**given, "maxOffsetsPerTrigger": "many"}, streaming=None)


def test_brokers_may_be_away_for_as_many_minutes_as_there_are_attempts() -> None:
    assert read().away_s == 240
    assert read({"fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "500"}).away_s == 60
    with pytest.raises(OptionError, match=r"'fetchOffset\.numRetries' must be a whole number, it is '-1'"):
        read({"fetchOffset.numRetries": "-1"})


def test_a_sink_may_leave_the_topic_to_the_rows() -> None:
    assert WriteOptions.parse({**SERVERS, "checkpointLocation": "/x"}, streaming=True).topic is None
    assert WriteOptions.parse({**SERVERS, "topic": "t"}, streaming=False).topic == "t"
    with pytest.raises(OptionError, match="did you mean 'topic'"):
        WriteOptions.parse({**SERVERS, "topics": "t"}, streaming=False)


def test_a_stream_is_written_exactly_once_unless_told_otherwise() -> None:
    def is_exactly_once(streaming: bool, **options: str) -> bool:
        return WriteOptions.parse({**SERVERS, **options}, streaming=streaming).exactly_once

    assert is_exactly_once(True)
    assert not is_exactly_once(True, deliveryGuarantee="at-least-once")
    assert not is_exactly_once(False)
    assert is_exactly_once(False, deliveryGuarantee="exactly-once")
    with pytest.raises(OptionError, match="'deliveryGuarantee' is exactly-once or at-least-once, not 'once'"):
        is_exactly_once(True, deliveryGuarantee="once")
    with pytest.raises(OptionError, match=r"'kafka\.transactional\.id' cannot be set"):
        is_exactly_once(True, **{"kafka.transactional.id": "mine"})
