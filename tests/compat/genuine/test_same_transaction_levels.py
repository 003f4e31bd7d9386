"""The levels of the feature `transaction.version`: the same for genuine Kafka and Ottla, and so is what they allow."""

import pytest
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.transaction_stories import Pair, Teller, compare

from ottla.protocol.messages import api_versions as av
from ottla.protocol.messages import update_features as uf


def level_of_transactions(teller: Teller, level: int) -> None:
    """Finalize another level of `transaction.version`; wait until brokers report it to clients."""
    kind = 1 if level == 2 else 2  # an upgrade, or a safe downgrade from there
    update = uf.FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
    teller.ask(f"level {level}", uf.UpdateFeaturesRequest(feature_updates=[update]), 1)

    def told() -> bool:
        request = av.ApiVersionsRequest(client_software_name="stories", client_software_version="1")
        answer = ask(teller.bootstrap, request, 4)
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return bool(levels.get("transaction.version", 0) == level)

    eventually(told)


@pytest.mark.parametrize(("level", "version"), [(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4), (2, 5)])
def test_every_level_of_the_feature(transactional_pair: Pair, level: int, version: int) -> None:
    """What clients of both generations may do where `transaction.version` is what an operator made it.

    At level 0 nobody sends what adds partitions by itself: genuine Kafka gets stuck in it (the transactional id answers
    CONCURRENT_TRANSACTIONS ever after).
    """

    def story(teller: Teller) -> None:
        name, topic, group = f"level-{level}-{version}", f"levels-{level}-{version}", f"levels-group-{level}-{version}"
        topic_id = teller.create(topic)
        level_of_transactions(teller, level)
        try:
            writer = teller.new(name)
            teller.end("commit of nothing", writer, commit=True, version=version)
            writer = teller.end("abort of nothing", writer, commit=False, version=version)
            if level:
                teller.send("implicitly", writer, (topic_id, 0), 0, b"a", version=13)
                teller.commit_offsets("offsets, implicitly", writer, group, [(topic, 0, 3)], version=5)
            teller.transaction(name)
            teller.add("adds", writer, [(topic, 0)])
            teller.send("added", writer, (topic, 0), min(level, 1), b"b")
            teller.send("once more", writer, (topic, 0), min(level, 1) + 1, b"c")
            teller.add_group("adds a group", writer, group)
            teller.commit_offsets("offsets", writer, group, [(topic, 0, 4)], version=3)
            old, writer = writer, teller.end("commit", writer, commit=True, version=version)
            teller.transaction(name, until=lambda state: state == "CompleteCommit")
            teller.end("commit again", old, commit=True, version=version)
            teller.end("abort the committed", old, commit=False, version=version)
            teller.add("adds after it", old, [(topic, 0)])
            teller.send("after it", old, (topic, 0), min(level, 1) + 2, b"d")
            teller.transaction(name)
            again = teller.new(name)
            teller.transaction(name)
            teller.end("of the fenced", writer, commit=True, version=version)
            teller.init("the fenced asks again", writer)
            teller.init("the successor asks again", again)
            teller.transaction(name)
            teller.offsets(group, topic, stable=True)
            teller.log(topic)
        finally:
            level_of_transactions(teller, 2)

    compare(transactional_pair, story)


def test_a_level_that_is_changed_under_transactions(transactional_pair: Pair) -> None:
    def story(teller: Teller) -> None:
        teller.create("changed")
        try:
            for number, (before, after) in enumerate([(0, 2), (2, 0), (1, 2), (2, 1)]):
                name = f"changes-{number}"
                level_of_transactions(teller, before)
                writer = teller.new(name)
                teller.add("adds", writer, [("changed", 0)])
                teller.send("a record", writer, ("changed", 0), 0)
                level_of_transactions(teller, after)
                teller.transaction(name)
                old, writer = writer, teller.end("commit", writer, commit=True, version=5 if after == 2 else 3)
                teller.transaction(name, until=lambda state: state == "CompleteCommit")
                teller.end("commit again", old, commit=True, version=5 if after == 2 else 3)
                teller.add("adds again", writer, [("changed", 0)])
                teller.send("another", writer, ("changed", 0), 0 if after == 2 else 1)
                teller.end("abort", writer, commit=False, version=3)
                teller.transaction(name, until=lambda state: state == "CompleteAbort")
                level_of_transactions(teller, 2)
            teller.log("changed")
        finally:
            level_of_transactions(teller, 2)

    compare(transactional_pair, story)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_that_cannot_be(transactional_pair: Pair, version: int) -> None:
    def story(teller: Teller) -> None:
        def update(what: str, *updates: uf.FeatureUpdateKey) -> None:
            request = uf.UpdateFeaturesRequest(feature_updates=list(updates))
            teller.ask(what, request, version)

        def key(feature: str, level: int, upgrade_type: int = 1) -> uf.FeatureUpdateKey:
            found = uf.FeatureUpdateKey(feature=feature, max_version_level=level)
            if version == 0:
                found.allow_downgrade = upgrade_type > 1
            else:
                found.upgrade_type = upgrade_type
            return found

        update("nothing")
        update("unknown", key("no.such.feature", 1))
        update("too high", key("transaction.version", 3))
        update("negative", key("transaction.version", -1))
        update("the same", key("transaction.version", 2))
        update("lower without leave", key("transaction.version", 1))
        update("twice", key("transaction.version", 2), key("transaction.version", 1))
        if version:
            update("no such way", key("transaction.version", 1, 9))
            update("higher as a downgrade", key("transaction.version", 2, 2))
        update("one good, one not", key("transaction.version", 1, 2), key("no.such.feature", 1))
        level_of_transactions(teller, 2)

    compare(transactional_pair, story)
