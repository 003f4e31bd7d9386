"""Why a record is still there, and when it will go."""

import pytest

from ottla.console.retention import Place, duration, stay

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_767_225_600_000
"""2026-01-01 00:00 UTC."""
MB = 1_000_000


def place(age_ms: int = HOUR, offset: int = 100, size_bytes: int | None = 1_000 * MB, **more: bool) -> Place:
    """The place of a record in a partition of 1,000 records, the newest of which was written now."""
    return Place(offset, NOW - age_ms, 0, 1_000, size_bytes, NOW, **more)


def test_a_record_that_is_young_enough_says_when_it_goes() -> None:
    found = stay({"retention.ms": str(7 * DAY), "segment.ms": str(DAY)}, place(size_bytes=1000), NOW)
    assert found.why == "It is 1 hour old, and retention.ms keeps records for 7 days."
    assert found.when.startswith("It goes after 2026-01-07 23:00 UTC")
    assert "by 2026-01-08 23:05 UTC, as estimated" in found.when


def test_a_segment_that_fills_faster_than_its_time_is_closed_earlier() -> None:
    # 899 MB came in the hour since the record: a segment of 89.9 MB takes 6 minutes
    found = stay({"retention.ms": str(DAY), "segment.bytes": str(int(89.9 * MB))}, place(), NOW)
    assert "It goes after 2026-01-01 23:00 UTC" in found.when
    assert "by 2026-01-01 23:11 UTC" in found.when


def test_a_record_that_is_past_its_time_waits_for_its_segment() -> None:
    found = stay({"retention.ms": str(HOUR), "segment.ms": str(DAY)}, place(2 * HOUR, size_bytes=None), NOW)
    assert "past the 1 hour of retention.ms" in found.why
    assert found.when == (
        "It goes by 2026-01-01 23:05 UTC, as estimated from segment.ms, segment.bytes and the rate of writes."
    )


def test_a_record_that_should_have_gone_says_where_to_look() -> None:
    found = stay({"retention.ms": str(HOUR), "segment.ms": str(HOUR)}, place(3 * DAY), NOW)
    assert "should have gone by" in found.when


def test_a_timestamp_in_the_future_keeps_a_record() -> None:
    assert "1 day in the future" in stay({}, place(-DAY), NOW).why


def test_size_limits_by_what_was_written_after_the_record() -> None:
    found = stay({"retention.ms": "-1", "retention.bytes": str(1_798 * MB)}, place(), NOW)
    assert found.why == "About 899.0 MB have been written after it, and retention.bytes keeps 1.8 GB."
    assert found.when == "It goes after about 899.0 MB more, at the present rate 2026-01-01 01:00 UTC."
    soon = stay({"retention.ms": "-1", "retention.bytes": str(MB)}, place(), NOW)
    assert "with the next checks" in soon.when


def test_the_limit_that_comes_first_says_when() -> None:
    found = stay({"retention.ms": str(7 * DAY), "retention.bytes": str(1_798 * MB)}, place(), NOW)
    assert "retention.ms keeps" in found.why
    assert "retention.bytes keeps" in found.why
    assert "at the present rate" in found.when
    late = stay({"retention.ms": str(90 * 60_000), "retention.bytes": str(1_798 * MB)}, place(), NOW)
    assert late.when.startswith("It goes after 2026-01-01 00:30 UTC")


@pytest.mark.parametrize(
    ("size_bytes", "offset", "said"), [(None, 100, "size is unknown"), (1000, 999, "nothing has come after it yet")]
)
def test_what_is_unknown_is_said_to_be(size_bytes: int | None, offset: int, said: str) -> None:
    found = stay({"retention.ms": "-1", "retention.bytes": "9999"}, place(offset=offset, size_bytes=size_bytes), NOW)
    assert said in found.when


def test_a_topic_without_limits_keeps_everything() -> None:
    assert "deletes nothing" in stay({"retention.ms": "-1"}, place(), NOW).why


def test_compaction_keeps_the_latest_of_each_key() -> None:
    settings = {"cleanup.policy": "compact", "retention.ms": str(HOUR)}
    assert "otherwise it stays" in stay(settings, place(9 * DAY), NOW).when
    bounded = stay({**settings, "max.compaction.lag.ms": str(DAY)}, place(), NOW)
    assert "at most 1 day (max.compaction.lag.ms)" in bounded.when
    held = stay({**settings, "min.compaction.lag.ms": str(DAY)}, place(), NOW)
    assert "until 2026-01-01 23:00 UTC" in held.why
    assert "tombstone" in stay(settings, place(is_tombstone=True), NOW).why
    assert "no key" in stay(settings, place(has_key=False), NOW).why


def test_compaction_and_deletion_together() -> None:
    found = stay({"cleanup.policy": "compact, delete", "retention.ms": str(DAY)}, place(), NOW)
    assert "latest record of each key" in found.why
    assert "retention.ms keeps records for 1 day" in found.why
    assert "In any case: It goes after" in found.when


@pytest.mark.parametrize("settings", [{"retention.ms": "x"}, {"retention.ms": str(2**63 - 1)}, {"segment.bytes": "0"}])
def test_odd_settings_break_nothing(settings: dict[str, str]) -> None:
    assert stay(settings, place(-(2**60)), NOW).when
    assert stay(settings, Place(0, 0, 0, 0, 0, None), NOW).when


@pytest.mark.parametrize(
    ("length_ms", "text"), [(0, "0 ms"), (1_500, "1 second"), (90 * 60_000, "1 hour"), (3 * DAY, "3 days")]
)
def test_durations(length_ms: int, text: str) -> None:
    assert duration(length_ms) == text
