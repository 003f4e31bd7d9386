"""A controller's part of the page `/debug`: the quorum as its node sees it and, on the active one, the brokers."""

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.cluster.broker_sessions import why_fenced

if TYPE_CHECKING:
    from ottla.cluster.metadata_log.registrations import BrokerRegistration
    from ottla.server.controller_server import ControllerServer

MOST_BROKERS: Final = 500


def controller_page(server: "ControllerServer", now_s: float) -> dict[str, Any]:
    """The quorum and the brokers, for JSON; `now_s` is monotonic. On the loop's thread; bounded."""
    node, status, replay = server.node, server.node.status(), server.replay
    brokers = replay.state.brokers
    return {
        "role": status.role,
        "epoch": node.leader.epoch,
        "leader": node.leader.leader_id,
        "is_active": server.controller.is_active,
        "voters": {
            str(number): {"listeners": list(addresses), "lag_records": status.lags.get(number)}
            for number, addresses in status.addresses.items()
        },
        "levels": {**replay.image.features, "kraft.version": node.kraft_version},
        "metadata_log": {
            "start_offset": status.log_start_offset,
            "high_watermark": node.high_watermark,
            "end_offset": status.log_end_offset,
            "last_applied_offset": replay.offset,
            "newest_snapshot": None
            if status.snapshot is None
            else {
                "offset": status.snapshot.offset,
                "epoch": status.snapshot.epoch,
                "bytes": status.snapshot_bytes,
            },
        },
        "waiting": {"requests_of_the_quorum": status.requests, "appends": status.appends},
        "controllers": sorted(replay.state.controllers),
        "brokers": {
            str(number): _broker(server, brokers[number], now_s) for number in islice(sorted(brokers), MOST_BROKERS)
        },
    }


def _broker(server: "ControllerServer", broker: "BrokerRegistration", now_s: float) -> dict[str, Any]:
    """A registered broker; only the active controller knows of its heartbeats."""
    found: dict[str, Any] = {
        "epoch": broker.epoch,
        "rack": broker.rack,
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
    }
    controller = server.controller
    if not controller.is_active:
        return found
    contact = controller.sessions.contact(broker.broker_id)
    if contact is not None:
        found |= {"seconds_since_contact": round(now_s - contact.at_s, 3), "metadata_offset": contact.metadata_offset}
    if broker.fenced:
        has_ended = broker.broker_id in controller.ended
        found["why_fenced"] = why_fenced(
            contact, broker.epoch, now_s, controller.session_timeout_s, has_ended=has_ended
        )
    return found
