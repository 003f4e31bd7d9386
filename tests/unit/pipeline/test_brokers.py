"""What a run makes of its brokers' answers, without any."""

from collections.abc import Collection, Mapping

import pytest
from tests.support.eventually import eventually

from ottla.pipeline import brokers
from ottla.pipeline.brokers import Brokers
from ottla.pipeline.errors import PipelineError
from ottla.spark.errors import NotReadyError, SourceError, unreachable
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import Partition

T, U = Partition("t", 0), Partition("u", 0)
AWAY = unreachable("h:1", "topic 't'", "h:1 cannot be reached: Connection refused")


class FakeQueries:
    """The topics `t` and `u`, of one partition each."""

    def __init__(self) -> None:
        self.ends: dict[Partition, int | SourceError] = {T: 7, U: 9}
        self.problem: SourceError | None = None
        self.expected: set[str] = set()

    def names(self, expected: Collection[str] = ()) -> list[str]:
        if self.problem is not None:
            raise self.problem
        self.expected.update(expected)
        return ["t", "u"]

    def describe(self, topics: Collection[str]) -> dict[str, Described]:
        return {topic: Described([0], None) for topic in topics}

    def offsets(self, places: Mapping[Partition, int]) -> dict[Partition, int | SourceError]:
        if self.problem is not None:
            raise self.problem
        return {partition: self.ends[partition] for partition in places}


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> FakeQueries:
    fake = FakeQueries()
    monkeypatch.setattr(brokers, "metadata_queries", lambda *_: fake)
    monkeypatch.setattr(brokers, "_ANSWER_WITHIN_S", 0.01)
    monkeypatch.setattr(brokers, "_REST_S", 0.001)
    return fake


@pytest.fixture
def asked(queries: FakeQueries) -> Brokers:
    return Brokers({"bootstrap.servers": "h:1"})


def poll(asked: Brokers) -> dict[tuple[str, int], int]:
    """The next answers."""
    asked.ask([])
    eventually(lambda: asked._thread is not None and not asked._thread.is_alive())
    return asked.poll()


def trouble(asked: Brokers) -> str | None:
    return asked.trouble


def test_inputs_are_looked_for(asked: Brokers, queries: FakeQueries) -> None:
    asked.check_inputs(["t", "u"])
    assert queries.expected == {"t", "u"}  # a broker that has just started and knows none is not believed
    with pytest.raises(PipelineError, match=r"the job reads topic 'tt', which does not exist on h:1; did you mean 't'"):
        asked.check_inputs(["t", "tt"])
    with pytest.raises(PipelineError, match=r"topic 'flights', .*; create it first: ottla topic create flights"):
        asked.check_inputs(["flights"])


def test_the_ends_of_what_is_watched_are_told(asked: Brokers) -> None:
    assert asked.poll() == {}
    asked.watch(["t", "later"])
    assert poll(asked) == {T: 7}
    asked.ask([("u", 0)])
    assert poll(asked) == {T: 7, U: 9}
    assert trouble(asked) is None


def test_trouble_shows_and_clears(asked: Brokers, queries: FakeQueries) -> None:
    asked.watch(["t", "u"])
    queries.problem = AWAY
    assert poll(asked) == {}
    assert trouble(asked) == "no broker answers at h:1 (h:1 cannot be reached: Connection refused)"
    queries.problem = None
    queries.ends[T] = NotReadyError("partition t-0 at h:1: it has no leader")
    assert poll(asked) == {U: 9}
    assert trouble(asked) is None
    queries.ends[U] = queries.ends[T]
    assert poll(asked) == {}
    assert trouble(asked) == "partition t-0 at h:1: it has no leader"


@pytest.mark.parametrize(
    ("problem", "said"), [(AWAY, r"no broker answers at h:1 \(h:1 cannot be"), (SourceError("refused"), "refused")]
)
def test_a_run_does_not_start_without_brokers(
    asked: Brokers, queries: FakeQueries, problem: SourceError, said: str
) -> None:
    queries.problem = problem
    with pytest.raises(PipelineError, match=said):
        asked.check_inputs(["t"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bootstrap.servers": "h"}, "is a list of host:port"),
        ({"bootstrap.servers": "h:1", "security.protocol": "hope"}, r"security\.protocol 'hope' is none of"),
    ],
)
def test_wrong_settings_show_at_once(settings: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        Brokers(settings)
