"""Limits of connections by address."""

from ottla.config.broker import BrokerConfig
from ottla.quotas.limits import Limits
from ottla.server.connection_limits import ConnectionLimits


def test_a_quota_for_an_ipv6_address_holds_in_the_form_of_java() -> None:
    limits = ConnectionLimits(BrokerConfig({}))
    limits.limit_addresses(Limits({}, {"2001:db8:0:0:0:0:0:7": 1.0}))
    assert any(limits.throttled_s("2001:db8::7", 0.0) for _ in range(100))
    assert not any(limits.throttled_s("2001:db8::8", 0.0) for _ in range(100))
