"""What a node's configuration means to its listeners, its quorum and its controller."""

from __future__ import annotations

import logging
import resource

import pytest

from kraftrio.base.start_errors import StartError
from kraftrio.base.version import VERSION
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.node.settings import (
    connection_limits,
    controller_config,
    controller_connection_limits,
    log_start,
    quorum_config,
    raise_open_files_limit,
    voter_set,
)
from kraftrio.broker.server.admission.connection_quotas import UNLIMITED
from kraftrio.kraft_meta.metadata.image import BROKER, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import ConfigRecord
from kraftrio.kraft_meta.raft.voters import VoterEndpoint


def config(**settings: str) -> BrokerConfig:
    """Settings by their names with underscores."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return BrokerConfig.load(None, named, {}, host_name=lambda: "h")


class OpenFiles:
    """The system's limit of open files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.limits = (soft, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: self.limits)
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, _kind: int, limits: tuple[int, int]) -> None:
        self.limits = limits


@pytest.mark.parametrize(
    ("open_files", "connections"),
    [(100, 1), (1000, 750), (400, 200), (resource.RLIM_INFINITY, 5000)],
)
def test_clients_leave_open_files_for_logs(
    monkeypatch: pytest.MonkeyPatch, open_files: int, connections: int
) -> None:
    """A quarter of the files that may be open, at least 200, is not for connections."""
    OpenFiles(monkeypatch, open_files, open_files)
    assert connection_limits(config(max_connections="5000")).max_connections == connections


def test_a_lower_max_connections_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    OpenFiles(monkeypatch, 1000, 1000)
    assert connection_limits(config(max_connections="10")).max_connections == 10


def test_as_many_files_are_opened_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning where that is few, and an error where it is too few for any node."""
    enough = OpenFiles(monkeypatch, 256, 65_536)
    raise_open_files_limit()
    assert enough.limits == (65_536, 65_536)
    assert caplog.records == []
    few = OpenFiles(monkeypatch, 256, 1024)
    with caplog.at_level(logging.WARNING, "kraftrio.node"):
        raise_open_files_limit()
    assert few.limits == (1024, 1024)
    assert "few files may be open limit=1024" in caplog.text
    OpenFiles(monkeypatch, 32, 63)
    with pytest.raises(StartError, match=r"^only 63 files may be open: raise it to 64 at least"):
        raise_open_files_limit()


def test_a_node_without_voters_is_the_quorum_alone() -> None:
    """It has no address to be asked at, and needs none."""
    alone = config(node_id="4")
    assert controller_config(alone, "id").controller_ids == (4,)
    voters = voter_set(alone)
    assert (list(voters), voters.address(4)) == ([4], None)


def test_voters_are_those_of_the_configuration() -> None:
    """They listen by the first name of controller.listener.names."""
    settings = config(
        node_id="2",
        process_roles="broker",
        controller_listener_names="C",
        controller_quorum_voters="9@c:9093,8@b:9093",
    )
    assert controller_config(settings, "id").controller_ids == (8, 9)
    voters = quorum_config(settings).voters
    assert {node_id: voters.endpoints(node_id) for node_id in voters} == {
        9: (VoterEndpoint("C", "c", 9093),),
        8: (VoterEndpoint("C", "b", 9093),),
    }


def test_a_listener_has_limits_of_its_own() -> None:
    """The brokers' listener is protected as soon as there is another one."""
    listeners = "INSIDE://h:9092,OUTSIDE://h:9093"
    several = {
        "listeners": listeners,
        "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter_broker_listener_name": "INSIDE",
        "max_connections": "30",
        "listener_name_outside_max_connections": "10",
        "listener_name_outside_max_connection_creation_rate": "3",
        "max_connection_creation_rate": "5",
    }
    limits = connection_limits(config(**several))
    assert (limits.max_connections, limits.max_connection_creation_rate) == (30, 5)
    assert limits.of_listener == {"INSIDE": 30, "OUTSIDE": 10}
    assert limits.rate_of_listener == {"INSIDE": 5, "OUTSIDE": 3}
    assert limits.protected_listener == "INSIDE"
    assert connection_limits(config()).protected_listener is None
    of_controllers = controller_connection_limits(config(**several))
    assert (of_controllers.max_connections, of_controllers.of_listener) == (30, {})
    assert of_controllers.max_connection_creation_rate == UNLIMITED


def test_limits_of_a_listener_change_while_it_runs() -> None:
    dynamic = DynamicConfig(config(node_id="1"), pytest.fail)
    delta = MetadataDelta(MetadataImage())
    prefix = "listener.name.plaintext."
    delta.replay(ConfigRecord(BROKER, "1", f"{prefix}max.connections", "7"))
    delta.replay(ConfigRecord(BROKER, "", f"{prefix}max.connection.creation.rate", "9"))
    dynamic.on_image(delta.apply(1, 1))
    limits = connection_limits(dynamic.current)
    assert (limits.of_listener, limits.rate_of_listener) == ({"PLAINTEXT": 7}, {"PLAINTEXT": 9})


def test_a_start_names_its_settings_but_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """The release and what differs from the defaults, in one line."""
    caplog.set_level("INFO")
    texts = {"log.retention.ms": "5", "ssl.key.password": "x", "listener.name.a.password": "y"}
    log_start(BrokerConfig(texts))
    (record,) = caplog.records
    fields = record.__dict__["kraftrio_fields"]
    assert fields["version"] == VERSION and fields["roles"] == "broker,controller"
    shown = {name: fields[name] for name in texts}
    assert shown == dict.fromkeys(texts, "(hidden)") | {"log.retention.ms": "5"}
