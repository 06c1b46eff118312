"""A group's setting: its own within what the broker allows, else the broker's."""

from __future__ import annotations

from immutables import Map

from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.group_settings import GroupSettings

SESSION, STANDBYS = "consumer.session.timeout.ms", "streams.num.standby.replicas"


class Stand:
    """A broker and its groups, whose settings change."""

    def __init__(self) -> None:
        self.broker = BrokerConfig({})
        self.groups: dict[str, Map[str, str]] = {}
        self.settings = GroupSettings(
            lambda: self.broker, lambda group_id: self.groups.get(group_id, Map())
        )


def test_the_brokers_unless_the_group_sets_it() -> None:
    """Each change counts at once, for the group that it is about."""
    stand = Stand()
    assert stand.settings.number("g", SESSION) == 45000
    stand.groups["g"] = Map({SESSION: "50000"})
    assert [stand.settings.number(group_id, SESSION) for group_id in "gh"] == [50000, 45000]
    assert stand.settings.number("g", "consumer.heartbeat.interval.ms") == 5000
    stand.groups["g"] = stand.groups["g"].set(SESSION, "55000")
    assert stand.settings.number("g", SESSION) == 55000
    del stand.groups["g"]
    stand.broker = BrokerConfig({"group.consumer.session.timeout.ms": "46000"})
    assert stand.settings.number("g", SESSION) == 46000


def test_bounds_that_changed_since() -> None:
    """A value that was allowed once is held within what is allowed now."""
    stand = Stand()
    stand.groups["g"] = Map({SESSION: "59000", STANDBYS: "2", "share.delivery.count.limit": "3"})
    assert stand.settings.number("g", SESSION) == 59000
    stand.broker = BrokerConfig(
        {
            "group.consumer.max.session.timeout.ms": "50000",
            "group.streams.max.standby.replicas": "1",
            "group.share.min.delivery.count.limit": "4",
        }
    )
    assert stand.settings.number("g", SESSION) == 50000
    assert stand.settings.number("g", STANDBYS) == 1
    assert stand.settings.number("g", "share.delivery.count.limit") == 4


def test_what_cannot_be_read_is_left_aside() -> None:
    """Another version of the software may have committed it."""
    stand = Stand()
    stand.groups["g"] = Map({SESSION: "soon", "consumer.no.such": "1"})
    assert stand.settings.number("g", SESSION) == 45000


def test_texts_and_flags() -> None:
    """Settings of other types."""
    stand = Stand()
    assert stand.settings.text("g", "share.isolation.level") == "read_uncommitted"
    assert stand.settings.flag("g", "share.renew.acknowledge.enable")
    stand.groups["g"] = Map(
        {"share.isolation.level": "read_committed", "share.renew.acknowledge.enable": "FALSE"}
    )
    assert stand.settings.text("g", "share.isolation.level") == "read_committed"
    assert not stand.settings.flag("g", "share.renew.acknowledge.enable")


def test_a_group_is_read_once() -> None:
    """As long as nothing changes; what it set is forgotten with its last setting."""
    stand = Stand()
    stand.groups["g"] = Map({SESSION: "50000"})
    stand.settings.number("g", SESSION)
    read = stand.settings._read["g"]
    stand.settings.number("g", SESSION)
    assert stand.settings._read["g"] is read
    del stand.groups["g"]
    stand.settings.number("g", SESSION)
    assert not stand.settings._read
