"""How a node's listeners are secured: what its settings mean, and certificates renewed."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.broker.config.dynamic_config import DynamicConfig
from kraftrio.broker.config.types import PropertyError
from kraftrio.broker.node.environment import Environment
from kraftrio.broker.node.security.secured_listeners import (
    RENEWAL_S,
    NodeSecurity,
    listener_security,
    tls_settings,
)
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.kraft_meta.metadata.image import BROKER, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.records import ConfigRecord
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.net.tls.settings import ClientAuth
from tests.security.certificates import Authority, key_store, trust_store, write_private

CA = Authority()
OUTSIDE = "listener.name.outside."
LISTENERS = {
    "listeners": "INSIDE://localhost:1,OUTSIDE://localhost:2,PLAINTEXT://localhost:3,C://:4",
    "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL,PLAINTEXT:PLAINTEXT,C:SSL",
    "inter.broker.listener.name": "INSIDE",
    "controller.listener.names": "C",
}


async def at_once(work: Callable[[], object]) -> None:
    await trio.lowlevel.checkpoint()
    work()


ENVIRONMENT = Environment(run_in_thread=at_once)


def node(settings: dict[str, str]) -> tuple[NodeSecurity, DynamicConfig]:
    config = BrokerConfig({"node.id": "1", **settings}, host_name=lambda: "localhost")
    dynamic = DynamicConfig(config, logging.getLogger("kraftrio.node").warning)
    return NodeSecurity(dynamic, ENVIRONMENT), dynamic


def secured(folder: Path) -> dict[str, str]:
    """Listeners with the stores of all, and one with a key store of its own."""
    own = key_store(folder, CA.server("outside"), name="outside")
    return {
        **LISTENERS,
        **key_store(folder, CA.server("node")),
        **trust_store(folder, CA),
        **{OUTSIDE + name: text for name, text in own.items()},
    }


def subject(security: NodeSecurity, name: str) -> str:
    own = security._listeners[name].identity.current.material.own
    assert own is not None
    return own.chain[0].subject.rfc4514_string()


def serial(security: NodeSecurity, name: str) -> int:
    own = security._listeners[name].identity.current.material.own
    assert own is not None
    return own.chain[0].serial_number


def test_each_listener_is_secured_as_it_says(tmp_path: Path) -> None:
    security, dynamic = node(secured(tmp_path))
    assert [subject(security, name) for name in ("INSIDE", "OUTSIDE", "C")] == [
        "CN=node",
        "CN=outside",
        "CN=node",
    ]
    assert security.admission("PLAINTEXT", Dispatcher({})) is None
    assert security.admission("OUTSIDE", Dispatcher({})) is not None
    assert isinstance(security.serving_network("OUTSIDE"), SecuredNetwork)
    assert security.serving_network("PLAINTEXT") is ENVIRONMENT.network
    assert isinstance(security.brokers, SecuredNetwork)
    assert isinstance(security.controllers, SecuredNetwork)
    described = listener_security(dynamic.static, "OUTSIDE")
    assert described.protocol is SecurityProtocol.SSL and described.tls is not None
    assert listener_security(dynamic.static, "PLAINTEXT").tls is None


def test_where_clients_log_in_only_that_listener_itself_wants_certificates() -> None:
    """KIP-684: the setting of all listeners is about those without a login."""
    settings = {
        "node.id": "1",
        "listeners": "SSL://localhost:1,SASL_SSL://localhost:2,OTHER://localhost:3",
        "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL,OTHER:SASL_SSL",
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
        "listener.name.other.ssl.client.auth": "requested",
    }
    config = BrokerConfig(settings, host_name=lambda: "localhost")
    wanted = {name: tls_settings(config, name).client_auth for name in ("SSL", "SASL_SSL", "OTHER")}
    assert wanted == {
        "SSL": ClientAuth.REQUIRED,
        "SASL_SSL": ClientAuth.NONE,
        "OTHER": ClientAuth.REQUESTED,
    }


def test_without_tls_nothing_lies_between() -> None:
    security, _ = node({"listeners": "PLAINTEXT://localhost:1"})
    assert security.brokers is security.controllers is ENVIRONMENT.network


def test_a_broker_dials_controllers_as_their_listener_says(tmp_path: Path) -> None:
    """It has no such listener itself, but settings for it."""
    prefix = "listener.name.c."
    settings = {
        "process.roles": "broker",
        "controller.quorum.voters": "9@localhost:4",
        **LISTENERS,
        "listeners": "PLAINTEXT://localhost:3",
        "inter.broker.listener.name": "PLAINTEXT",
        **{prefix + name: text for name, text in key_store(tmp_path, CA.server("b")).items()},
        **{prefix + name: text for name, text in trust_store(tmp_path, CA).items()},
    }
    security, _ = node(settings)
    assert isinstance(security.controllers, SecuredNetwork)
    assert security.brokers is ENVIRONMENT.network
    assert subject(security, "C") == "CN=b"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ssl.keystore.location": "/none"}, "listener INSIDE: ssl.keystore.location /none cannot"),
        ({"ssl.client.auth": "required", OUTSIDE + "ssl.protocol": "x"}, None),
        ({OUTSIDE + "ssl.client.auth": "maybe"}, "listener OUTSIDE: ssl.client.auth is maybe"),
        (
            {OUTSIDE + "ssl.principal.mapping.rules": "x"},
            "listener OUTSIDE: ssl.principal.mapping.rules has 'x'",
        ),
        (
            {"ssl.truststore.location": "other"},
            "listener INSIDE: the certificate of ssl.keystore is not trusted by ssl.truststore",
        ),
    ],
)
def test_what_cannot_be_used_ends_the_start(
    change: dict[str, str], sentence: str | None, tmp_path: Path
) -> None:
    settings = {**secured(tmp_path), **change}
    if settings["ssl.truststore.location"] == "other":
        settings |= trust_store(tmp_path, Authority(), name="other")
    if sentence is None:
        node(settings)
        return
    with pytest.raises(StartError) as caught:
        node(settings)
    assert str(caught.value).startswith(sentence), str(caught.value)


# -- renewal -------------------------------------------------------------------------------------


@asynccontextmanager
async def running(settings: dict[str, str]) -> AsyncIterator[tuple[NodeSecurity, DynamicConfig]]:
    security, dynamic = node(settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(security.run)
        yield security, dynamic
        nursery.cancel_scope.cancel()


def set_dynamically(dynamic: DynamicConfig, **configs: str) -> None:
    delta = MetadataDelta(MetadataImage())
    for name, text in configs.items():
        delta.replay(ConfigRecord(BROKER, "1", OUTSIDE + name.replace("_", "."), text))
    dynamic.on_image(delta.apply(1, 1))


async def test_a_file_that_changes_is_read_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kraftrio.node")
    async with running(secured(tmp_path)) as (security, _):
        before = {name: serial(security, name) for name in ("INSIDE", "OUTSIDE", "C")}
        await trio.sleep(3 * RENEWAL_S)
        assert not caplog.records
        key_store(tmp_path, CA.server("outside"), name="outside")
        await trio.sleep(RENEWAL_S + 1)
        after = {name: serial(security, name) for name in ("INSIDE", "OUTSIDE", "C")}
        assert {name for name in before if after[name] != before[name]} == {"OUTSIDE"}
        [line] = [record.getMessage() for record in caplog.records]
        assert line.startswith("certificates renewed listener=OUTSIDE until=")


@pytest.mark.parametrize("fault", ["damaged", "another name", "gone"])
async def test_what_cannot_be_used_changes_nothing_and_is_logged_once(
    fault: str,
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = secured(tmp_path)
    path = Path(settings[OUTSIDE + "ssl.keystore.location"])
    async with running(settings) as (security, _):
        before = serial(security, "OUTSIDE")
        if fault == "damaged":
            write_private(path, "half a fi")
        elif fault == "gone":
            os.unlink(path)
        else:
            key_store(tmp_path, CA.server("mallory"), name="outside")
        await trio.sleep(5 * RENEWAL_S)
        assert serial(security, "OUTSIDE") == before
        [line] = [record.getMessage() for record in caplog.records]
        assert line.startswith("certificates not renewed listener=OUTSIDE reason=")
        key_store(tmp_path, CA.server("outside"), name="outside")
        await trio.sleep(RENEWAL_S + 1)
        assert serial(security, "OUTSIDE") != before


async def test_settings_changed_while_it_runs(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(secured(tmp_path)) as (security, dynamic):
        before = serial(security, "OUTSIDE")
        other = key_store(tmp_path, CA.server("outside"), name="other")
        set_dynamically(dynamic, ssl_keystore_location=other["ssl.keystore.location"])
        await trio.testing.wait_all_tasks_blocked()
        assert serial(security, "OUTSIDE") != before


async def test_a_change_that_could_not_be_used_is_refused(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Before it is committed; one that can be is looked at at once, as its file may be another."""
    settings = secured(tmp_path)
    location = OUTSIDE + "ssl.keystore.location"
    async with running(settings) as (security, dynamic):
        with pytest.raises(PropertyError, match=r"^listener OUTSIDE: ssl.keystore.location /none "):
            dynamic.validate({location: "/none"}, per_broker=True)
        other = key_store(tmp_path, CA.server("mallory"), name="other")
        with pytest.raises(PropertyError, match="new certificate is of CN=mallory"):
            dynamic.validate({location: other["ssl.keystore.location"]}, per_broker=True)
        before = serial(security, "OUTSIDE")
        key_store(tmp_path, CA.server("outside"), name="outside")
        dynamic.validate({location: settings[location]}, per_broker=True)
        await trio.testing.wait_all_tasks_blocked()
        assert serial(security, "OUTSIDE") != before


async def test_a_damaged_file_hinders_no_other_change(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    settings = secured(tmp_path)
    async with running(settings) as (_, dynamic):
        write_private(Path(settings[OUTSIDE + "ssl.keystore.location"]), "half a fi")
        dynamic.validate({"log.cleaner.threads": "1"}, per_broker=True)
        with pytest.raises(PropertyError, match=r"^listener OUTSIDE: "):
            dynamic.validate({OUTSIDE + "ssl.client.auth": "required"}, per_broker=True)
