"""Lag in records and in time, from ends that were seen before."""

from ottla.pipeline.lag import Lag, LagHistory

P0, P1 = ("flights", 0), ("flights", 1)


def test_nothing_is_known_before_the_first_look() -> None:
    assert LagHistory().lag({P0: 5}, 10.0) is None


def test_a_query_at_the_end_is_not_behind() -> None:
    history = LagHistory()
    history.add({P0: 5}, 10.0)
    assert history.lag({P0: 5}, 99.0) == Lag(0, 0.0, False)


def test_it_is_as_far_behind_as_the_end_was_where_it_is() -> None:
    history = LagHistory()
    for now, end in ((10.0, 100), (12.0, 200), (14.0, 300)):
        history.add({P0: end}, now)
    assert history.lag({P0: 300}, 15.0) == Lag(0, 0.0, False)
    assert history.lag({P0: 200}, 15.0) == Lag(100, 3.0, False)
    assert history.lag({P0: 150}, 15.0) == Lag(150, 5.0, False)


def test_an_end_that_stands_still_does_not_grow_old() -> None:
    history = LagHistory()
    for now in (10.0, 20.0, 30.0):
        history.add({P0: 100}, now)
    history.add({P0: 101}, 32.0)
    assert history.lag({P0: 100}, 33.0) == Lag(1, 3.0, False)


def test_what_was_there_before_is_at_least_that_old() -> None:
    history = LagHistory()
    history.add({P0: 100}, 10.0)
    history.add({P0: 100}, 20.0)
    history.add({P0: 120}, 22.0)
    assert history.lag({P0: 7}, 25.0) == Lag(113, 5.0, True)


def test_records_add_up_and_the_slowest_partition_counts() -> None:
    history = LagHistory()
    for now, end in ((10.0, 100), (12.0, 200)):
        history.add({P0: end, P1: end}, now)
    assert history.lag({P0: 200, P1: 100}, 13.0) == Lag(100, 3.0, False)
    assert history.lag({P0: 100, P1: 199}, 13.0) == Lag(101, 3.0, False)


def test_a_topic_that_was_made_anew_forgets() -> None:
    history = LagHistory()
    history.add({P0: 100}, 10.0)
    history.add({P0: 3}, 20.0)
    assert history.lag({P0: 1}, 21.0) == Lag(2, 1.0, True)


def test_old_looks_become_rare_but_stay() -> None:
    history = LagHistory()
    for second in range(10_000):
        history.add({P0: second}, float(second))
    lag = history.lag({P0: 5}, 10_000.0)
    assert lag is not None
    assert lag.records == 9_994
    assert 9_990 <= lag.seconds <= 10_000
    assert len(history._times[P0]) <= 2_000
