"""The broker's line to the active controller: registration, heartbeats, forwarded admin requests.

On a node that is both broker and controller the line is a direct call into the quorum service.

The broker's life as the controller sees it (KIP-631)
1. It registers under its node id with a fresh incarnation id and gets a broker epoch; it is fenced.
2. It heartbeats with the metadata offset that it has applied; once that has caught up with its
   own registration the controller unfences it, and only then may it lead partitions.
3. At a graceful stop it asks for a controlled shutdown and goes when the controller says so.

Called by `node` (lifecycle) and by the handlers (`submit`).
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import trio

from kraftrio.kraft_meta.deferred import Deferred
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


class Controller(Protocol):
    """Where controller requests go: the quorum service, or a remote controller."""

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]: ...


class MetadataOffset(Protocol):
    """Tells which metadata offset this broker has applied."""

    def __call__(self) -> int: ...


class RegistrationError(Exception):
    """The controller refuses this broker for good."""


class ControllerChannel:
    """This broker's registration and its requests to the active controller.

    Args:
        applied_offset: the last metadata offset that the broker's managers have taken over.
    """

    def __init__(
        self,
        controller: Controller,
        broker_id: int,
        applied_offset: MetadataOffset,
        heartbeat_interval_ms: int,
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._applied_offset = applied_offset
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self.broker_epoch = -1
        self.is_fenced = True

    def submit(self, request: Any, *, api_version: int) -> Deferred[Any]:
        """Send a controller request on behalf of a client."""
        return self._controller.submit(request, api_version=api_version)

    async def register(self, request: BrokerRegistrationRequest, timeout_s: float) -> None:
        """Register and stay until the controller has unfenced this broker.

        Raises:
            RegistrationError: the controller refuses, or does not come round within the time.
        """
        with trio.move_on_after(timeout_s):
            while self.broker_epoch < 0:
                response: BrokerRegistrationResponse = await self.submit(
                    request, api_version=_REGISTRATION_VERSION
                ).wait()
                if response.error_code == ErrorCode.NONE:
                    self.broker_epoch = response.broker_epoch
                elif ErrorCode(response.error_code).retriable:
                    await trio.sleep(_RETRY_S)
                else:
                    raise RegistrationError(
                        f"the controller refuses broker {self._broker_id}:"
                        f" {ErrorCode(response.error_code).text}"
                    )
            while self.is_fenced:
                await self._heartbeat(want_shut_down=False)
                if self.is_fenced:
                    await trio.sleep(_RETRY_S)
            return
        raise RegistrationError(
            f"the controller did not let broker {self._broker_id} in within {timeout_s:g} s"
        )

    async def run_heartbeats(self) -> None:
        """Heartbeat until cancelled."""
        while True:
            await trio.sleep(self._heartbeat_interval_ms / 1000)
            await self._heartbeat(want_shut_down=False)

    async def controlled_shutdown(self) -> None:
        """Ask the controller to move leaders away; return when it agrees that we go."""
        while True:
            response = await self._heartbeat(want_shut_down=True)
            if response.should_shut_down or response.error_code != ErrorCode.NONE:
                return
            await trio.sleep(_RETRY_S)

    async def _heartbeat(self, *, want_shut_down: bool) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=False,
            want_shut_down=want_shut_down,
        )
        response: BrokerHeartbeatResponse = await self.submit(
            request, api_version=_HEARTBEAT_VERSION
        ).wait()
        if response.error_code != ErrorCode.NONE:
            _log.warning(
                "heartbeat refused broker=%d reason=%s",
                self._broker_id,
                ErrorCode(response.error_code).name,
            )
            return response
        if response.is_fenced != self.is_fenced:
            self.is_fenced = response.is_fenced
            _log.debug(
                "broker %s broker=%d epoch=%d",
                "fenced" if self.is_fenced else "unfenced",
                self._broker_id,
                self.broker_epoch,
            )
        return response
