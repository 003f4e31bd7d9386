"""A broker that is killed while access rules change: none is lost, none half applied, in a file and in ZooKeeper."""

import threading
from uuid import uuid4

import pytest

from ottla.admin import Admin
from ottla.security.acls import AccessRule, AclBinding, AclFilter, PatternType, PermissionType, ResourcePattern
from ottla.security.authorization import Operation, ResourceType
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.zookeeper import ZooKeeperServer


def pair(number: int) -> list[AclBinding]:
    """Two rules that one request adds or removes, on a literal and on a prefixed resource."""
    rule = AccessRule("User:alice", "*", Operation.READ, PermissionType.ALLOW)
    return [
        AclBinding(ResourcePattern(ResourceType.TOPIC, f"t{number}", pattern), rule)
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    ]


class Changing(threading.Thread):
    """Adds pairs, and removes each third one, until the broker is gone; remembers what was acknowledged."""

    def __init__(self, bootstrap: str, first: int) -> None:
        super().__init__()
        self.there: set[int] = set()
        self.gone: set[int] = set()
        self.under_way: int | None = None
        self.next = first
        self._address = bootstrap

    def run(self) -> None:
        try:
            with Admin(self._address, timeout_s=5) as admin:
                while True:
                    number, self.next = self.next, self.next + 1
                    self.under_way = number
                    admin.create_acls(pair(number))
                    self.there.add(number)
                    if number % 3 == 0:
                        self.there.discard(number)
                        admin.delete_acls([AclFilter(ResourceType.TOPIC, f"t{number}")])
                        self.gone.add(number)
        except Exception:
            return  # what was under way may be there or not


@pytest.mark.parametrize("store", ["embedded", "zookeeper"])
def test_a_kill_loses_no_acknowledged_change_and_leaves_none_in_part(zookeeper: ZooKeeperServer, store: str) -> None:
    shared = {"zookeeper.connect": f"{zookeeper.connect}/{uuid4()}"} if store == "zookeeper" else {}
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        **shared,
    }
    there: set[int] = set()
    gone: set[int] = set()
    doubtful: set[int] = set()
    following = 0
    with OttlaProcess(properties=settings) as broker:
        for kill in range(3):
            changing = Changing(broker.bootstrap, following)
            changing.start()
            eventually(lambda changing=changing, kill=kill: len(changing.there) >= 10 + 7 * kill, interval_s=0.001)
            broker.kill()
            changing.join()
            broker.start()
            there |= changing.there
            gone |= changing.gone
            doubtful.add(changing.under_way or 0)
            following = changing.next
            with Admin(broker.bootstrap, timeout_s=20) as admin:
                found = {binding.resource for binding in admin.list_acls()}
            for number in there - doubtful:
                assert {binding.resource for binding in pair(number)} <= found, f"pair {number} was lost"
            for number in gone - doubtful:
                assert not {binding.resource for binding in pair(number)} & found, f"pair {number} has come back"
            for number in doubtful:
                assert len({binding.resource for binding in pair(number)} & found) in (0, 2), f"half of pair {number}"
    assert len(there) > 30
    assert len(gone) > 5
