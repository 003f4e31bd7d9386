"""Which queries of a run `--once` start when."""

from ottla.pipeline.turns import After, Turns

STAGES = [["enriched", "flights.dead-letters"], ["hours", "delays"], ["totals"]]
UPSTREAM = {"hours": {"enriched"}, "delays": {"enriched"}, "totals": {"hours"}}
LETTERS = ("flights.dead-letters",)


def test_dead_letters_begin_behind_the_flows_of_their_stage() -> None:
    turns = Turns(STAGES, UPSTREAM, patient=LETTERS)
    assert [turns.behind(stage) for stage in range(3)] == [
        {"flights.dead-letters": After(frozenset({"enriched"}), 2)},
        {},
        {},
    ]


def test_queries_that_may_follow_begin_a_stage_early_behind_what_they_read() -> None:
    turns = Turns(STAGES, UPSTREAM, following=("hours", "totals"), patient=LETTERS)
    assert [turns.behind(stage) for stage in range(3)] == [
        {"hours": After(frozenset({"enriched"}), 1, 4), "flights.dead-letters": After(frozenset({"enriched"}), 2)},
        {"totals": After(frozenset({"hours"}), 1, 4)},
        {},
    ]


def test_a_query_that_reads_nothing_of_the_stage_waits_for_its_turn() -> None:
    turns = Turns([["first"], ["second"]], {"second": {"another"}}, following=("second",))
    assert turns.behind(0) == {}


def test_dead_letters_alone_begin_at_once() -> None:
    turns = Turns([["a.dead-letters", "b.dead-letters"]], patient=("a.dead-letters", "b.dead-letters"))
    assert [after.queries for after in turns.behind(0).values()] == [frozenset(), frozenset()]
