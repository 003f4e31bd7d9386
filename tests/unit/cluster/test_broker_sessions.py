from collections.abc import Callable

import pytest

from ottla.cluster.broker_sessions import BrokerSessions, Contact, Heartbeat, Standing, why_fenced
from ottla.ids import BrokerId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
REGISTERED_AT = 40


def leads(answer: bool) -> Callable[[], bool]:
    return lambda: answer


def sessions(*unfenced: BrokerId) -> BrokerSessions:
    made = BrokerSessions(9.0)
    made.begin([(broker, False, False) for broker in unfenced], 100.0, 50)
    return made


def beat(offset: int = 45, *, fence: bool = False, stop: bool = False) -> Heartbeat:
    return Heartbeat(offset, fence, stop)


class TestFencing:
    def test_a_new_controller_gives_each_broker_a_whole_session(self) -> None:
        known = sessions(ONE, TWO)
        assert known.next_deadline() == 109.0
        assert known.stale(109.0) == []
        assert known.stale(109.1) == [ONE, TWO]

    def test_a_heartbeat_prolongs_a_session(self) -> None:
        known = sessions(ONE, TWO)
        known.touch(ONE, beat(), 105.0, is_fenced=False)
        assert known.stale(110.0) == [TWO]
        assert known.is_valid(ONE, 114.0)
        assert not known.is_valid(ONE, 114.1)

    def test_the_longest_silent_comes_first(self) -> None:
        known = sessions(ONE, TWO, THREE)
        known.touch(ONE, beat(), 102.0, is_fenced=False)
        known.touch(THREE, beat(), 101.0, is_fenced=False)
        assert known.stale(200.0) == [TWO, THREE, ONE]

    def test_fenced_brokers_have_no_deadline(self) -> None:
        known = sessions(ONE)
        known.fence(ONE)
        assert known.next_deadline() is None
        assert known.stale(1000.0) == []
        assert not known.is_valid(ONE, 100.0)

    def test_a_term_forgets_the_one_before(self) -> None:
        known = sessions(ONE, TWO)
        known.begin([(TWO, True, False)], 500.0, 90)
        assert known.next_deadline() is None


class TestStanding:
    @pytest.mark.parametrize(
        ("heartbeat", "after"),
        [
            (beat(REGISTERED_AT), Standing.UNFENCED),
            (beat(REGISTERED_AT - 1), Standing.FENCED),
            (beat(REGISTERED_AT, fence=True), Standing.FENCED),
            (beat(0, stop=True), Standing.SHUTDOWN_NOW),
        ],
    )
    def test_of_a_fenced_broker(self, heartbeat: Heartbeat, after: Standing) -> None:
        known = BrokerSessions(9.0)
        known.register(ONE, 100.0, is_fenced=True)
        assert known.after(ONE, heartbeat, REGISTERED_AT, leads(False)) == (Standing.FENCED, after)

    @pytest.mark.parametrize(
        ("heartbeat", "has_more", "after"),
        [
            (beat(), True, Standing.UNFENCED),
            (beat(fence=True), True, Standing.UNFENCED),  # it comes late
            (beat(fence=True, stop=True), True, Standing.SHUTDOWN_NOW),
            (beat(stop=True), True, Standing.CONTROLLED_SHUTDOWN),
            (beat(stop=True), False, Standing.SHUTDOWN_NOW),
        ],
    )
    def test_of_one_that_is_not(self, heartbeat: Heartbeat, has_more: bool, after: Standing) -> None:
        known = sessions(ONE)
        assert known.after(ONE, heartbeat, REGISTERED_AT, leads(has_more)) == (Standing.UNFENCED, after)

    def test_a_broker_that_was_never_seen_is_fenced(self) -> None:
        assert sessions().after(ONE, beat(0), REGISTERED_AT, leads(False))[1] is Standing.FENCED


class TestControlledShutdown:
    def stopping(self) -> BrokerSessions:
        known = sessions(ONE, TWO)
        known.touch(TWO, beat(60), 101.0, is_fenced=False)
        known.begin_shutdown(ONE, 70)
        return known

    def after(self, known: BrokerSessions, *, has_more: bool = False) -> Standing:
        return known.after(ONE, beat(stop=True), REGISTERED_AT, leads(has_more))[1]

    def test_lasts_until_the_others_know(self) -> None:
        known = self.stopping()
        assert self.after(known) is Standing.CONTROLLED_SHUTDOWN
        known.touch(TWO, beat(69), 102.0, is_fenced=False)
        assert self.after(known) is Standing.CONTROLLED_SHUTDOWN
        known.touch(TWO, beat(70), 103.0, is_fenced=False)
        assert self.after(known) is Standing.SHUTDOWN_NOW

    def test_lasts_while_it_leads(self) -> None:
        known = self.stopping()
        known.touch(TWO, beat(99), 103.0, is_fenced=False)
        assert self.after(known, has_more=True) is Standing.CONTROLLED_SHUTDOWN

    def test_waits_for_no_broker_that_is_fenced_or_stops_too(self) -> None:
        known = self.stopping()
        known.begin_shutdown(TWO, 71)
        assert self.after(known) is Standing.SHUTDOWN_NOW
        known = self.stopping()
        known.fence(TWO)
        assert self.after(known) is Standing.SHUTDOWN_NOW

    def test_goes_on_under_a_new_controller(self) -> None:
        known = BrokerSessions(9.0)
        known.begin([(ONE, False, True), (TWO, False, False)], 100.0, 80)
        assert self.after(known) is Standing.CONTROLLED_SHUTDOWN
        known.touch(TWO, beat(80), 101.0, is_fenced=False)
        assert self.after(known) is Standing.SHUTDOWN_NOW

    def test_begins_once(self) -> None:
        known = self.stopping()
        known.begin_shutdown(ONE, 900)
        known.touch(TWO, beat(70), 103.0, is_fenced=False)
        assert self.after(known) is Standing.SHUTDOWN_NOW

    def test_ends_with_fencing(self) -> None:
        known = self.stopping()
        known.fence(ONE)
        assert known.after(ONE, beat(), REGISTERED_AT, leads(False)) == (Standing.FENCED, Standing.UNFENCED)


@pytest.mark.parametrize(
    ("contact", "now_s", "has_ended", "reason"),
    [
        (None, 100.0, False, "no heartbeat has come since it was registered, or since this controller became active"),
        (Contact(95.0, 10), 100.0, False, "it has read the metadata log up to 10; it registered at 40"),
        (Contact(95.0, 45), 100.0, False, "its heartbeats ask for it: it starts, or stops"),
        (Contact(85.0, 45), 100.0, False, "no heartbeat has come for 15.0 s"),
        (Contact(85.0, 45), 100.0, True, "its process has ended"),
    ],
)
def test_the_reason_for_a_fence_is_a_sentence(
    contact: Contact | None, now_s: float, has_ended: bool, reason: str
) -> None:
    assert why_fenced(contact, REGISTERED_AT, now_s, 9.0, has_ended=has_ended) == reason


def test_the_last_contact_is_known() -> None:
    known = sessions(ONE)
    known.touch(ONE, beat(47), 105.0, is_fenced=False)
    assert known.contact(ONE) == (105.0, 47)
    assert known.contact(TWO) is None
