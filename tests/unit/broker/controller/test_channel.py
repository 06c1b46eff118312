"""A broker's life as the controller sees it, on a virtual clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
from immutables import Map
from trio.testing import MockClock

from kraftrio.base.deferred import Deferred
from kraftrio.broker.controller.channel import ControllerChannel, RegistrationError
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.client_limits import ClientLimits
from kraftrio.kraft_meta.metadata.image import BrokerImage, MetadataDelta, MetadataImage
from kraftrio.kraft_meta.metadata.quota_image import CONTROLLER_MUTATION_RATE, quota_entity
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

BROKER_ID = 5
REGISTRATION = BrokerRegistrationRequest(broker_id=BROKER_ID, incarnation_id=b"i" * 16)
INTERVAL_MS = 2_000


class FakeController:
    """Registers brokers at `epoch`, unfences them once they have read it, as the real one does.

    Attributes:
        registration_errors: answered to registrations first, one each.
        heartbeat_errors: answered to heartbeats first, one each.
        leads: the broker leads partitions, so it may not go.
        parked: heartbeats are answered when the test completes them, while this is a list.
    """

    def __init__(self) -> None:
        self.epoch = 100
        self.registration_errors: list[ErrorCode] = []
        self.heartbeat_errors: list[ErrorCode] = []
        self.leads = False
        self.parked: list[Deferred[Any]] | None = None
        self.registrations: list[BrokerRegistrationRequest] = []
        self.senders: list[RequestSender] = []
        self.heartbeats: list[tuple[float, BrokerHeartbeatRequest]] = []

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        if isinstance(request, BrokerRegistrationRequest):
            return Deferred.completed(self._register(request))
        self.heartbeats.append((trio.current_time(), request))
        if self.parked is not None:
            self.parked.append(Deferred())
            return self.parked[-1]
        return Deferred.completed(self._heartbeat(request))

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        self.senders.append(sender)
        return self.submit(request, api_version=api_version)

    def _register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        self.registrations.append(request)
        if self.registration_errors:
            return BrokerRegistrationResponse(error_code=self.registration_errors.pop(0))
        return BrokerRegistrationResponse(broker_epoch=self.epoch)

    def _heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if self.heartbeat_errors:
            return BrokerHeartbeatResponse(error_code=self.heartbeat_errors.pop(0))
        if request.broker_epoch != self.epoch:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        is_caught_up = request.current_metadata_offset >= self.epoch
        return BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=not is_caught_up,
            should_shut_down=request.want_shut_down and not self.leads,
        )


class Context:
    """One broker's channel, with the metadata offset it has applied."""

    def __init__(self) -> None:
        self.controller = FakeController()
        self.applied_offset = 200
        self.offline: list[bytes] = []
        self.mutation_limits = ClientLimits(CONTROLLER_MUTATION_RATE)
        self.channel = ControllerChannel(
            self.controller,
            BROKER_ID,
            lambda: self.applied_offset,
            INTERVAL_MS,
            lambda: self.offline,
            self.mutation_limits,
        )

    async def join(self) -> None:
        """Register and wait to be let in."""
        await self.channel.register(REGISTRATION, 60)
        await self.channel.wait_unfenced(60)

    def image(self, **changes: Any) -> tuple[MetadataDelta, MetadataImage]:
        """An image of three brokers in which this one or another is as `changes` say."""
        broker_id = changes.pop("broker_id", BROKER_ID)
        before = MetadataImage(
            offset=300, brokers=Map({number: _broker(number) for number in (4, BROKER_ID, 6)})
        )
        changed = replace(before.brokers[broker_id], **changes)
        after = replace(before, offset=301, brokers=before.brokers.set(broker_id, changed))
        return MetadataDelta.between(before, after), after

    def heartbeat_times(self) -> list[float]:
        return [round(at, 3) for at, _ in self.controller.heartbeats]


def _broker(broker_id: int) -> BrokerImage:
    return BrokerImage(
        broker_id=broker_id,
        broker_epoch=100,
        incarnation_id=bytes(16),
        endpoints=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
    )


@pytest.fixture
def context(autojump_clock: MockClock) -> Context:
    return Context()


# ---- registration


async def test_a_broker_that_has_read_its_registration_is_let_in(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.join()
    assert context.channel.broker_epoch == 100
    assert not context.channel.is_fenced
    assert len(context.controller.heartbeats) == 1


async def test_a_broker_is_let_in_when_it_has_caught_up(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    context.applied_offset = 99
    nursery.start_soon(context.join)
    await trio.sleep(1.02)
    assert context.channel.is_fenced
    context.applied_offset = 100
    context.channel.on_metadata(*context.image(fenced=True))
    await trio.sleep(0.001)  # no need to wait for the next try
    assert not context.channel.is_fenced


async def test_a_former_lifes_session_is_waited_for(
    context: Context, autojump_clock: MockClock
) -> None:
    controller = context.controller
    controller.registration_errors = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 100
    await context.join()
    assert context.channel.broker_epoch == 100
    assert len({request.incarnation_id for request in controller.registrations}) == 1
    assert 1 < trio.current_time() < 10


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER])
async def test_elections_are_waited_for(
    context: Context, autojump_clock: MockClock, error: ErrorCode
) -> None:
    context.controller.registration_errors = [error] * 3
    context.controller.heartbeat_errors = [error] * 3
    await context.join()
    assert not context.channel.is_fenced


async def test_a_registration_that_is_lost_before_the_first_heartbeat_is_repeated(
    context: Context, autojump_clock: MockClock
) -> None:
    context.controller.heartbeat_errors = [ErrorCode.BROKER_ID_NOT_REGISTERED]
    await context.join()
    assert len(context.controller.registrations) == 2


async def test_a_broker_that_never_catches_up_is_not_let_in(
    context: Context, autojump_clock: MockClock
) -> None:
    context.applied_offset = 99
    await context.channel.register(REGISTRATION, 60)
    with pytest.raises(RegistrationError, match="did not let broker 5 in within 10 s"):
        await context.channel.wait_unfenced(10)
    assert round(trio.current_time()) == 10


async def test_a_refused_registration_fails_at_once(
    context: Context, autojump_clock: MockClock
) -> None:
    context.controller.registration_errors = [ErrorCode.INCONSISTENT_CLUSTER_ID]
    with pytest.raises(RegistrationError, match="refuses broker 5"):
        await context.join()
    assert trio.current_time() == 0


async def test_only_directories_that_are_online_are_registered(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Of one that could not be read there is no id; one that failed since is not named again."""
    request = BrokerRegistrationRequest(
        broker_id=BROKER_ID, incarnation_id=b"i" * 16, log_dirs=[b"a" * 16, b"", b"c" * 16]
    )
    await context.channel.register(request, 60)
    await context.channel.wait_unfenced(60)
    nursery.start_soon(context.channel.run_heartbeats)
    context.offline.append(b"a" * 16)
    context.controller.heartbeat_errors = [ErrorCode.BROKER_ID_NOT_REGISTERED]
    await trio.sleep(3)
    assert [one.log_dirs for one in context.controller.registrations] == [
        [b"a" * 16, b"c" * 16],
        [b"c" * 16],
    ]


async def test_a_failed_directory_is_reported_at_once_and_by_every_heartbeat(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    await trio.sleep(1)
    context.offline.append(b"a" * 16)
    context.channel.heartbeat_soon()
    await trio.sleep(3)
    sent = [(round(at, 3), one.offline_log_dirs) for at, one in context.controller.heartbeats]
    assert sent == [(0, []), (1, [b"a" * 16]), (3, [b"a" * 16])]


async def test_a_registration_that_takes_too_long_fails_and_says_why(
    context: Context, autojump_clock: MockClock
) -> None:
    context.controller.registration_errors = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 10_000
    reason = ErrorCode.DUPLICATE_BROKER_REGISTRATION.text
    with pytest.raises(RegistrationError, match=f"within 60 s: {reason}"):
        await context.join()
    assert round(trio.current_time()) == 60


# ---- heartbeats


async def test_heartbeats_come_at_their_interval(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    await trio.sleep(7)
    assert context.heartbeat_times() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("changes", "at_once"),
    [
        ({"broker_id": 4, "in_controlled_shutdown": True}, True),
        ({"fenced": True}, True),
        ({"broker_id": 4, "in_controlled_shutdown": True, "fenced": True}, False),
        ({"broker_id": 4, "fenced": True}, False),
        ({"in_controlled_shutdown": True}, False),
    ],
)
async def test_what_the_controller_waits_for_is_sent_at_once(
    context: Context,
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    changes: dict[str, Any],
    at_once: bool,
) -> None:
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    await trio.sleep(0.5)
    context.channel.on_metadata(*context.image(**changes))
    await trio.sleep(1)
    assert context.heartbeat_times() == ([0, 0.5] if at_once else [0])


async def test_one_heartbeat_at_a_time_is_under_way(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    parked: list[Any] = []
    context.controller.parked = parked
    nursery.start_soon(context.channel.run_heartbeats)
    for _ in range(5):
        await trio.sleep(3)
        context.channel.heartbeat_soon()
    assert len(parked) == 1
    parked[0].complete(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    await trio.sleep(0.001)
    assert len(parked) == 2  # what there was to report meanwhile


async def test_failed_log_directories_are_reported(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    context.offline.append(b"d" * 16)
    context.channel.heartbeat_soon()
    await trio.sleep(0.001)
    assert context.controller.heartbeats[-1][1].offline_log_dirs == [b"d" * 16]


async def test_an_unanswered_heartbeat_is_followed_by_another(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    context.controller.heartbeat_errors = [ErrorCode.REQUEST_TIMED_OUT] * 2
    nursery.start_soon(context.channel.run_heartbeats)
    await trio.sleep(2.5)
    assert context.heartbeat_times() == [0, 2, 2.05, 2.1]


# ---- a registration that is gone


@pytest.mark.parametrize(
    "error", [ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH]
)
async def test_a_lost_registration_is_repeated_as_the_same_incarnation(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery, error: ErrorCode
) -> None:
    await context.join()
    controller = context.controller
    controller.epoch, context.applied_offset = 400, 500
    controller.heartbeat_errors = [error]
    controller.registration_errors = [ErrorCode.REQUEST_TIMED_OUT]
    nursery.start_soon(context.channel.run_heartbeats)
    await trio.sleep(2.2)
    assert context.channel.broker_epoch == 400
    assert not context.channel.is_fenced
    assert {request.incarnation_id for request in controller.registrations} == {b"i" * 16}


async def test_a_broker_whose_id_lives_elsewhere_ends(
    context: Context, autojump_clock: MockClock
) -> None:
    await context.join()
    context.controller.heartbeat_errors = [ErrorCode.STALE_BROKER_EPOCH]
    context.controller.registration_errors = [ErrorCode.DUPLICATE_BROKER_REGISTRATION]
    with pytest.raises(RegistrationError, match="refuses broker 5"):
        await context.channel.run_heartbeats()


# ---- controlled shutdown


async def test_a_broker_goes_when_it_leads_nothing_any_more(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    context.controller.leads = True
    gone = trio.Event()

    async def shut_down() -> None:
        await context.channel.controlled_shutdown()
        gone.set()

    nursery.start_soon(shut_down)
    await trio.sleep(0.5)
    assert not gone.is_set()
    context.controller.leads = False
    with trio.fail_after(0.06):
        await gone.wait()


@pytest.mark.parametrize(
    ("errors", "at_most_s"),
    [
        ([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER], 0.2),
        ([ErrorCode.STALE_BROKER_EPOCH] * 100, 0.01),
    ],
    ids=["tries again", "nothing to hand over"],
)
async def test_a_shutdown_ends_whatever_the_controller_says(
    context: Context, autojump_clock: MockClock, errors: list[ErrorCode], at_most_s: float
) -> None:
    await context.join()
    context.controller.heartbeat_errors = errors
    with trio.fail_after(at_most_s):
        await context.channel.controlled_shutdown()
    assert all(request.want_shut_down for _, request in context.controller.heartbeats[1:])


async def test_a_broker_that_is_going_does_not_register_again(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    await context.channel.controlled_shutdown()
    context.controller.heartbeat_errors = [ErrorCode.STALE_BROKER_EPOCH] * 100
    await trio.sleep(3)
    assert len(context.controller.registrations) == 1


# ---- log directories that failed


async def test_a_failed_directory_is_reported_and_the_broker_goes_on(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """However long: the controller knows."""
    await context.join()
    nursery.start_soon(context.channel.run_heartbeats)
    nursery.start_soon(context.channel.watch_failed_directories, 30)
    await trio.sleep(100)
    context.offline.append(b"d" * 16)
    context.channel.directory_failed()
    await trio.sleep(100)
    assert context.controller.heartbeats[-1][1].offline_log_dirs == [b"d" * 16]


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_broker_that_cannot_report_a_failed_directory_ends(
    context: Context, autojump_clock: MockClock, is_silent: bool
) -> None:
    """After log.dir.failure.timeout.ms, be the controller silent or refusing."""
    await context.join()
    if is_silent:
        context.controller.parked = []
    else:
        context.controller.heartbeat_errors = [ErrorCode.NOT_CONTROLLER] * 10_000
    context.offline.append(b"d" * 16)
    begin = trio.current_time()
    with pytest.RaisesGroup(pytest.RaisesExc(RegistrationError, match="within 30 s that a log")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(context.channel.run_heartbeats)
            nursery.start_soon(context.channel.watch_failed_directories, 30)
            await trio.sleep(5)
            context.offline.append(b"e" * 16)  # another one does not restart the time
            context.channel.directory_failed()
    assert trio.current_time() - begin == pytest.approx(30)


async def test_a_directory_that_is_reported_late_but_in_time(
    context: Context, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Each has its own time."""
    await context.join()
    context.controller.parked = []
    nursery.start_soon(context.channel.run_heartbeats)
    nursery.start_soon(context.channel.watch_failed_directories, 30)
    context.offline.append(b"d" * 16)
    context.channel.directory_failed()
    await trio.sleep(29)
    parked, context.controller.parked = context.controller.parked, None
    for deferred in parked:
        deferred.complete(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    count = len(context.controller.heartbeats)
    await trio.sleep(100)
    assert len(context.controller.heartbeats) > count, "the broker goes on"


async def test_only_clients_with_a_quota_of_changes_are_named_to_the_controller() -> None:
    context = Context()
    alice, bob = RequestSender("alice", "app"), RequestSender("bob", "app")
    user = quota_entity({"user": "alice"})
    for quotas in ({user: {CONTROLLER_MUTATION_RATE: 1.0}}, {user: None}):
        context.mutation_limits.change(quotas)
        for sender in (alice, bob):
            context.channel.submit_for(sender, BrokerHeartbeatRequest(), api_version=1)
    assert context.controller.senders == [alice]
