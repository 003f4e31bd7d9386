from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.cluster.broker_registrations import (
    MOST_BROKERS,
    MOST_CONTROLLERS,
    MOST_DIRECTORIES,
    MOST_FEATURES,
    MOST_LISTENERS,
    changed_directories,
    check_epoch,
    plan_controller,
    plan_registration,
)
from ottla.cluster.metadata_log.registrations import BrokerRegistration, registered_broker
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.controller_registration import Feature as ControllerFeature
from ottla.protocol.messages.controller_registration import Listener as ControllerListener
from ottla.protocol.metadata_records import RegisterBrokerRecord

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
FEATURES = {"metadata.version": 30, "transaction.version": 2}
FIRST, SECOND = UUID(int=1 << 80), UUID(int=2 << 80)
PROCESS, ANOTHER = UUID(int=3 << 80), UUID(int=4 << 80)


def request(**changes: Any) -> BrokerRegistrationRequest:
    fields: dict[str, Any] = {
        "broker_id": 1,
        "cluster_id": CLUSTER,
        "incarnation_id": PROCESS,
        "listeners": [Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        "features": [
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            Feature(name="transaction.version", min_supported_version=0, max_supported_version=2),
        ],
        "rack": "r",
        "log_dirs": [FIRST],
    }
    return BrokerRegistrationRequest(**(fields | changes))


def plan(
    asked: BrokerRegistrationRequest, known: BrokerRegistration | None = None, *, is_alive: bool = False
) -> RegisterBrokerRecord:
    brokers: dict[int, BrokerRegistration] = {} if known is None else {known.broker_id: known}
    return plan_registration(CLUSTER, brokers, FEATURES, asked, is_alive=is_alive, epoch=77)


def registered(**changes: Any) -> BrokerRegistration:
    return registered_broker(plan(request(**changes)))


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        call()
    return refused.value.code


class TestBrokers:
    def test_a_stranger_cannot_fill_the_log_with_brokers(self) -> None:
        full = dict.fromkeys(range(MOST_BROKERS), registered(broker_id=1))
        with pytest.raises(ApiError, match=r"there is room for no other: unregister those that are gone") as refused:
            plan_registration(CLUSTER, full, FEATURES, request(broker_id=MOST_BROKERS), is_alive=False, epoch=77)
        assert refused.value.code is ErrorCode.INVALID_REGISTRATION
        again = request(broker_id=1, incarnation_id=ANOTHER, log_dirs=[SECOND])
        assert plan_registration(CLUSTER, full, FEATURES, again, is_alive=False, epoch=77).broker_epoch == 77

    def test_its_texts_are_limited_together(self) -> None:
        listeners = [Listener(name=f"L{nth}", host="h" * 1000, port=1, security_protocol=0) for nth in range(40)]
        assert refusal(lambda: plan(request(listeners=listeners))) is ErrorCode.INVALID_REGISTRATION
        assert len(plan(request(listeners=listeners[:8])).end_points) == 8

    def test_a_new_one_is_fenced_in_the_epoch_of_its_offset(self) -> None:
        record = plan(request())
        assert (record.broker_id, record.broker_epoch, record.fenced) == (1, 77, True)
        assert (record.rack, record.log_dirs) == ("r", [FIRST])
        assert [(end.name, end.host, end.port) for end in record.end_points] == [("PLAINTEXT", "h", 9092)]

    def test_another_process_gets_another_epoch(self) -> None:
        known = registered()._replace(epoch=5, fenced=False)
        record = plan(request(incarnation_id=ANOTHER), known)
        assert (record.broker_epoch, record.fenced) == (77, True)

    def test_the_same_process_amends_its_registration(self) -> None:
        known = registered()._replace(epoch=5, fenced=False, in_controlled_shutdown=True, cordoned=(FIRST,))
        record = plan(request(rack="other"), known, is_alive=True)
        assert (record.broker_epoch, record.fenced, record.in_controlled_shutdown) == (5, False, True)
        assert (record.rack, record.cordoned_log_dirs) == ("other", [FIRST])

    def test_a_number_is_not_given_twice_while_its_broker_lives(self) -> None:
        code = refusal(lambda: plan(request(incarnation_id=ANOTHER), registered(), is_alive=True))
        assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    def test_another_cluster_is_refused(self) -> None:
        assert refusal(lambda: plan(request(cluster_id="other"))) is ErrorCode.INCONSISTENT_CLUSTER_ID

    def test_brokers_from_zookeeper_are_refused(self) -> None:
        assert refusal(lambda: plan(request(is_migrating_zk_broker=True))) is ErrorCode.BROKER_ID_NOT_REGISTERED

    @pytest.mark.parametrize(
        "directories", [[], [UUID(int=1)], [FIRST, FIRST], [UUID(int=1 << 90 | n) for n in range(MOST_DIRECTORIES + 1)]]
    )
    def test_bad_directories(self, directories: list[UUID]) -> None:
        assert refusal(lambda: plan(request(log_dirs=directories))) is ErrorCode.INVALID_REGISTRATION

    def test_a_directory_belongs_to_one_broker(self) -> None:
        known = registered(broker_id=2)
        assert refusal(lambda: plan(request(), known)) is ErrorCode.INVALID_REGISTRATION

    @pytest.mark.parametrize(
        "listeners",
        [
            [Listener(name="A", host="h", port=0, security_protocol=0)],
            [Listener(name="A", host="h", port=1, security_protocol=9)],
            [Listener(name="A", host="h", port=1, security_protocol=0)] * 2,
            [Listener(name=str(n), host="h", port=1, security_protocol=0) for n in range(MOST_LISTENERS + 1)],
            [Listener(name="A", host="h" * 30_000, port=1, security_protocol=0)],
        ],
    )
    def test_bad_listeners(self, listeners: list[Listener]) -> None:
        assert refusal(lambda: plan(request(listeners=listeners))) is ErrorCode.INVALID_REGISTRATION

    def test_too_many_features_are_refused(self) -> None:
        many = [
            Feature(name=str(n), min_supported_version=0, max_supported_version=1) for n in range(MOST_FEATURES + 1)
        ]
        assert refusal(lambda: plan(request(features=many))) is ErrorCode.INVALID_REGISTRATION

    def test_a_feature_is_named_once(self) -> None:
        twice = [*request().features, request().features[0]]
        assert refusal(lambda: plan(request(features=twice))) is ErrorCode.INVALID_REGISTRATION


class TestLevels:
    @pytest.mark.parametrize("reach", [(7, 29), (31, 40), (0, 0)])
    def test_each_finalized_level_has_to_be_supported(self, reach: tuple[int, int]) -> None:
        low, high = reach
        other = Feature(name="metadata.version", min_supported_version=low, max_supported_version=high)
        features = [other, request().features[1]]
        assert refusal(lambda: plan(request(features=features))) is ErrorCode.UNSUPPORTED_VERSION

    def test_a_level_that_a_broker_does_not_name_is_not_supported(self) -> None:
        assert refusal(lambda: plan(request(features=request().features[:1]))) is ErrorCode.UNSUPPORTED_VERSION

    def test_a_broker_without_metadata_version_has_the_first(self) -> None:
        record = plan_registration(CLUSTER, {}, {}, request(features=[]), is_alive=False, epoch=1)
        assert [(each.name, each.max_supported_version) for each in record.features] == [("metadata.version", 1)]

    def test_features_that_the_cluster_does_not_have_are_kept(self) -> None:
        own = Feature(name="own.feature", min_supported_version=0, max_supported_version=3)
        assert [each.name for each in plan(request(features=[*request().features, own])).features][-1] == "own.feature"


class TestRequestsInABrokersName:
    def test_have_its_epoch(self) -> None:
        known = registered()
        assert check_epoch({1: known}, 1, 77) is known

    @pytest.mark.parametrize(("broker_id", "epoch"), [(1, 76), (1, 78), (1, -1), (2, 77), (-1, -1)])
    def test_or_are_refused(self, broker_id: int, epoch: int) -> None:
        code = refusal(lambda: check_epoch({1: registered()}, broker_id, epoch))
        assert code is ErrorCode.STALE_BROKER_EPOCH


class TestDirectories:
    def test_a_failed_one_goes(self) -> None:
        change = changed_directories(registered(log_dirs=[FIRST, SECOND]), [SECOND], None)
        assert change is not None
        assert change.log_dirs == [FIRST]

    def test_a_foreign_one_is_passed_over(self) -> None:
        assert changed_directories(registered(), [SECOND], None) is None

    def test_cordoned_ones_replace_those_before(self) -> None:
        broker = registered(log_dirs=[FIRST, SECOND])
        change = changed_directories(broker, [], [SECOND, ANOTHER])
        assert change is not None
        assert change.cordoned_log_dirs == [SECOND]
        assert changed_directories(broker._replace(cordoned=(SECOND,)), [], [SECOND]) is None
        cleared = changed_directories(broker._replace(cordoned=(SECOND,)), [], [])
        assert cleared is not None
        assert cleared.cordoned_log_dirs == []


class TestControllers:
    def controller(self, *, controller_id: int = 3000, highest: int = 30) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=controller_id,
            incarnation_id=PROCESS,
            zk_migration_ready=True,
            listeners=[ControllerListener(name="CONTROLLER", host="h", port=9093, security_protocol=0)],
            features=[
                ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=highest),
                ControllerFeature(name="transaction.version", min_supported_version=0, max_supported_version=2),
            ],
        )

    def test_are_registered(self) -> None:
        record = plan_controller((), FEATURES, self.controller())
        assert (record.controller_id, record.incarnation_id, record.zk_migration_ready) == (3000, PROCESS, False)

    def test_have_to_support_the_levels(self) -> None:
        assert (
            refusal(lambda: plan_controller((), FEATURES, self.controller(highest=29))) is ErrorCode.UNSUPPORTED_VERSION
        )

    def test_have_a_number(self) -> None:
        assert (
            refusal(lambda: plan_controller((), FEATURES, self.controller(controller_id=-1)))
            is ErrorCode.INVALID_REGISTRATION
        )

    def test_a_stranger_cannot_fill_the_log_with_controllers(self) -> None:
        known = range(5000, 5000 + MOST_CONTROLLERS)
        refused = refusal(lambda: plan_controller(known, FEATURES, self.controller(controller_id=1)))
        assert refused is ErrorCode.INVALID_REGISTRATION
        again = plan_controller(known, FEATURES, self.controller(controller_id=5000))
        assert again.controller_id == 5000
