"""The broker's life as the controller sees it: registration, heartbeats, controlled shutdown.

Owns: this broker's epoch and whether it is fenced. Rules, as KIP-631:
1. It registers under its node id with a fresh incarnation id and gets a broker epoch; it is fenced.
   While its previous incarnation still has its session (DUPLICATE_BROKER_REGISTRATION) it tries
   again.
2. It heartbeats with the metadata offset that it has applied; once that has caught up with its own
   registration the controller unfences it, and only then may it lead partitions.
3. Heartbeats come at their interval, and at once when there is something to report: a new
   connection to the controller, metadata that the controller waits for, this broker fenced in the
   image, a failed log directory. One is under way at a time.
4. A registration that is gone (unregistered) is repeated as the same incarnation; when another
   incarnation is registered under this id, this one ends.
5. It registers with the log directories that are online. Those that fail later are reported by
   every heartbeat, one of which goes at once (KIP-858). When a failure cannot be reported for
   log.dir.failure.timeout.ms this broker ends, so that its leaderships can move.
6. At a graceful stop it asks for a controlled shutdown and goes when the controller says so.

The way to the controller is a `ControllerPort`: `controller/client` in a broker. It waits
through elections and retries what may be retried; so an error here is the controller's decision,
or a timeout.

Called by `node` (lifecycle) and by the handlers (`submit`). Kafka's counterparts:
BrokerLifecycleManager, BrokerRegistrationTracker.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.broker.ports import ClientsController
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.client_limits import ClientLimits
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

_log = logging.getLogger("kraftrio.lifecycle")

_REGISTRATION_VERSION = 4
_HEARTBEAT_VERSION = 1
_RETRY_S = 0.05
_REGISTRATION_GONE = (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH)


class RegistrationError(Exception):
    """The controller refuses this broker for good."""


class OtherClusterError(RegistrationError):
    """The controller is of another cluster."""


class ControllerChannel:
    """This broker's registration and its requests to the active controller.

    Args:
        applied_offset: the last metadata offset that the broker's managers have taken over.
        offline_log_dirs: the ids of the log directories that failed.
        mutation_limits: of clients, of what they may create and delete in a second.
    """

    def __init__(
        self,
        controller: ClientsController,
        broker_id: int,
        applied_offset: Callable[[], int],
        heartbeat_interval_ms: int,
        offline_log_dirs: Callable[[], Sequence[bytes]] = tuple,
        mutation_limits: ClientLimits | None = None,
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._applied_offset = applied_offset
        self._heartbeat_interval_s = heartbeat_interval_ms / 1000
        self._offline_log_dirs = offline_log_dirs
        self._mutation_limits = mutation_limits
        self._registration: BrokerRegistrationRequest | None = None
        self._heartbeat_due = trio.Event()
        self._directory_failed = trio.Event()
        self._reported_offline: frozenset[bytes] = frozenset()
        self._heartbeat_lock = trio.Lock()
        self._wants_shut_down = False
        self.broker_epoch = -1
        self.is_fenced = True

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Send a controller request on behalf of a client."""
        return self._controller.submit(request, api_version=api_version)

    def submit_for(self, sender: RequestSender, request: Any, *, api_version: int) -> Deferred[Any]:
        """The same, and name the client if the controller is to count what it changes."""
        limits = self._mutation_limits
        if not limits or limits.find(sender.user, sender.client_id) is None:
            return self._controller.submit(request, api_version=api_version)
        return self._controller.submit_for(sender, request, api_version=api_version)

    # -- registration ---------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest, timeout_s: float) -> None:
        """Register this broker; it is fenced then.

        Raises:
            RegistrationError: the controller refuses, or does not answer in time.
        """
        self._registration = request
        obstacle = ""
        with trio.move_on_after(timeout_s):
            while True:
                code = await self._try_to_register(request)
                if code is ErrorCode.NONE:
                    return
                if not (code.retriable or code is ErrorCode.DUPLICATE_BROKER_REGISTRATION):
                    raise self._refusal(code)
                if not obstacle:
                    _log.info("waiting to register reason=%s", code.name)
                obstacle = f": {code.text}"
                await trio.sleep(_RETRY_S)
        raise self._timed_out(timeout_s, obstacle)

    async def wait_unfenced(self, timeout_s: float) -> None:
        """Heartbeat until the controller has unfenced this broker.

        Raises:
            RegistrationError: the controller refuses, or does not answer in time.
        """
        with trio.move_on_after(timeout_s):
            while self.is_fenced:
                response = await self._heartbeat()
                code = response.error_code
                if code in _REGISTRATION_GONE:
                    await self._register_again(code)
                elif self.is_fenced:
                    await self._wait_until_due(_RETRY_S)
            return
        raise self._timed_out(timeout_s, "")

    def _timed_out(self, timeout_s: float, obstacle: str) -> RegistrationError:
        return RegistrationError(
            f"the controller did not let broker {self._broker_id} in within {timeout_s:g} s"
            f"{obstacle}"
        )

    async def _try_to_register(self, request: BrokerRegistrationRequest) -> ErrorCode:
        request, offline = copy(request), self._offline_log_dirs()
        request.log_dirs = [one for one in request.log_dirs if one and one not in offline]
        response: BrokerRegistrationResponse = await self.submit(
            request, api_version=_REGISTRATION_VERSION
        ).wait()
        code = response.error_code
        if code is ErrorCode.NONE:
            self.broker_epoch = response.broker_epoch
            self.is_fenced = True
            self._reported_offline = frozenset(offline)
            _log.debug("registered broker=%d epoch=%d", self._broker_id, self.broker_epoch)
        return code

    async def _register_again(self, reason: ErrorCode) -> None:
        """Rule 4."""
        assert self._registration is not None, "a broker heartbeats once it is registered"
        _log.warning(
            "registration lost, registering again broker=%d reason=%s", self._broker_id, reason.name
        )
        while True:
            code = await self._try_to_register(self._registration)
            if code is ErrorCode.NONE:
                return
            if not code.retriable:
                raise self._refusal(code)
            await trio.sleep(_RETRY_S)

    def _refusal(self, code: ErrorCode) -> RegistrationError:
        is_other_cluster = code is ErrorCode.INCONSISTENT_CLUSTER_ID
        kind = OtherClusterError if is_other_cluster else RegistrationError
        return kind(f"the controller refuses broker {self._broker_id}: {code.text}")

    # -- heartbeats -----------------------------------------------------------------------------

    def heartbeat_soon(self) -> None:
        """Let the next heartbeat go at once: there is something to report."""
        self._heartbeat_due.set()

    def directory_failed(self) -> None:
        """Report a log directory that has failed to the controller."""
        self._directory_failed.set()
        self.heartbeat_soon()

    async def watch_failed_directories(self, timeout_s: float) -> None:
        """End this broker when a failed directory could not be reported for that long (rule 5).

        Raises:
            RegistrationError: that is the case.
        """
        unreported_since: dict[bytes, float] = {}
        while True:
            self._directory_failed = trio.Event()
            now, offline = trio.current_time(), self._offline_log_dirs()
            unreported = [one for one in offline if one not in self._reported_offline]
            unreported_since = {one: unreported_since.get(one, now) for one in unreported}
            deadline = min(unreported_since.values(), default=math.inf) + timeout_s
            if now >= deadline:
                raise RegistrationError(
                    f"the controller could not be informed within {timeout_s:g} s that a log"
                    f" directory of broker {self._broker_id} has failed"
                )
            with trio.move_on_at(deadline):
                await self._directory_failed.wait()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Heartbeat at once if the controller waits for this image to be applied.

        It waits for a fenced broker to catch up, and before it lets another one go it waits for
        everyone to read that its leaderships moved. Called after the image was applied.
        """
        if self.broker_epoch < 0 or self._wants_shut_down:
            return
        if self.is_fenced and image.offset >= self.broker_epoch:
            self.heartbeat_soon()
            return
        for broker_id, broker in delta.changed_brokers.items():
            if broker_id == self._broker_id:
                # An older epoch here: the answer to a newer registration of ours is under way.
                if (broker is None or broker.fenced) and image.offset >= self.broker_epoch:
                    self.heartbeat_soon()
            elif broker is not None and broker.in_controlled_shutdown and not broker.fenced:
                self.heartbeat_soon()

    async def run_heartbeats(self) -> None:
        """Heartbeat until cancelled.

        Raises:
            RegistrationError: the controller does not want this broker any more.
        """
        await self._wait_until_due(self._heartbeat_interval_s)
        while True:
            response = await self._heartbeat()
            code = response.error_code
            if code in _REGISTRATION_GONE and not self._wants_shut_down:
                await self._register_again(code)
                self.heartbeat_soon()
            elif code is not ErrorCode.NONE:
                await trio.sleep(_RETRY_S)
                self.heartbeat_soon()
            await self._wait_until_due(self._heartbeat_interval_s)

    async def controlled_shutdown(self) -> None:
        """Ask the controller to move leaders away; return when it lets this broker go."""
        self._wants_shut_down = True
        while True:
            response = await self._heartbeat()
            code = response.error_code
            if code is ErrorCode.NONE:
                if response.should_shut_down:
                    return
            elif not code.retriable:
                return
            await trio.sleep(_RETRY_S)

    async def _wait_until_due(self, at_most_s: float) -> None:
        with trio.move_on_after(at_most_s):
            await self._heartbeat_due.wait()

    async def _heartbeat(self) -> BrokerHeartbeatResponse:
        async with self._heartbeat_lock:
            self._heartbeat_due = trio.Event()
            request = BrokerHeartbeatRequest(
                broker_id=self._broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._applied_offset(),
                want_fence=False,
                want_shut_down=self._wants_shut_down,
                offline_log_dirs=list(self._offline_log_dirs()),
            )
            response: BrokerHeartbeatResponse = await self.submit(
                request, api_version=_HEARTBEAT_VERSION
            ).wait()
        if response.error_code != ErrorCode.NONE:
            _log.warning(
                "heartbeat refused broker=%d reason=%s",
                self._broker_id,
                response.error_code.name,
            )
            return response
        self._reported_offline = frozenset(request.offline_log_dirs)
        if response.is_fenced != self.is_fenced:
            self.is_fenced = response.is_fenced
            _log.debug(
                "broker %s broker=%d epoch=%d",
                "fenced" if self.is_fenced else "unfenced",
                self._broker_id,
                self.broker_epoch,
            )
        return response
