"""The controller core while this node leads the quorum: `ActiveController`.

Owns: the controller core, and the responses that wait for their commit. Rules:
1. The controller decides while this node leads and has applied its own LeaderChange. When it stops
   leading, what was not committed is dropped and its callers get `NotController`.
2. A response is released when everything that its decision saw is committed, reads included.

Called by: quorum/service.py.
Tested by: tests/unit/kraft_meta/quorum/test_service.py.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kraftrio.base.clock import Clock
from kraftrio.base.deferred import Deferred
from kraftrio.kraft_meta.controller.controller import Controller
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.records import MetadataRecord, encode_record
from kraftrio.kraft_meta.quorum.publication import MetadataPublication
from kraftrio.kraft_meta.raft.quorum_state import Leader
from kraftrio.kraft_meta.raft.raft import RaftCore
from kraftrio.wire.errors import KafkaError

_log = logging.getLogger("kraftrio.metadata")

_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class NotController:
    """The answer of a node that is not the active controller.

    Attributes:
        may_be_decided: the request was decided before this node stopped leading, and it is unknown
            here whether the decision is committed; else it had no effect at all.
    """

    may_be_decided: bool = False


NEVER_DECIDED = NotController()
MAY_BE_DECIDED = NotController(may_be_decided=True)


@dataclass(frozen=True, slots=True)
class _Parked:
    """A response that waits until everything up to `offset` is committed."""

    offset: int
    response: Any
    deferred: Deferred[Any]


class ActiveController:
    """See the module.

    Args:
        wake: called when there is something new to persist, or a new deadline.
    """

    def __init__(
        self,
        controller: Controller,
        core: RaftCore,
        publication: MetadataPublication,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._controller = controller
        self._core = core
        self._publication = publication
        self._clock = clock
        self._wake = wake
        self._epoch = _NO_EPOCH
        self._parked: deque[_Parked] = deque()

    @property
    def is_active(self) -> bool:
        """This node decides about the cluster now."""
        return self._controller.is_active

    @property
    def parked_responses(self) -> int:
        """How many responses wait for their commit."""
        return len(self._parked)

    # ---- requests

    def submit(
        self, request: Any, api_version: int, sender: RequestSender | None = None
    ) -> Deferred[Any]:
        """Decide on a request; the response, or `NotController`, comes once it is committed."""
        core, controller = self._core, self._controller
        if not controller.is_active:
            return Deferred.completed(NEVER_DECIDED)
        try:
            result = controller.handle(
                request,
                api_version=api_version,
                next_offset=core.log.end_offset,
                now_ms=self._clock.monotonic_ms(),
                sender=sender,
            )
        except KafkaError as error:
            return Deferred.completed(error_response(request, error.code, error.message))
        if result.records:
            self._propose(result.records)
        elif core.log.end_offset - 1 <= self._publication.image.offset:
            self._wake()  # a session may have a new deadline
            return Deferred.completed(result.response)
        deferred: Deferred[Any] = Deferred()
        self._parked.append(_Parked(core.log.end_offset - 1, result.response, deferred))
        return deferred

    def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose process is known to be gone, if this node decides that."""
        if self._controller.is_active:
            now_ms = self._clock.monotonic_ms()
            records = self._controller.broker_connection_lost(broker_id, broker_epoch, now_ms)
            if records:
                self._propose(records)

    def _propose(self, records: Sequence[MetadataRecord]) -> None:
        base_offset = self._core.propose([encode_record(record) for record in records])
        last_offset = base_offset + len(records) - 1
        self._controller.replay(records, last_offset, self._core.epoch)
        self._wake()

    # ---- the quorum's task

    def check_leadership(self) -> None:
        """Begin or end to decide as leadership has it (rule 1)."""
        controller, core, role = self._controller, self._core, self._core.quorum.role
        if controller.is_active and (not isinstance(role, Leader) or core.epoch != self._epoch):
            _log.info("no longer the active controller epoch=%d", self._epoch)
            controller.deactivate()
            parked, self._parked = self._parked, deque()
            for entry in parked:
                entry.deferred.complete(MAY_BE_DECIDED)
        image = self._publication.image
        if (
            isinstance(role, Leader)
            and not controller.is_active
            and image.offset >= role.epoch_start_offset
        ):
            assert core.log.end_offset == image.offset + 1
            self._epoch = core.epoch
            _log.info("active controller epoch=%d offset=%d", core.epoch, image.offset)
            records = controller.activate(image, self._clock.monotonic_ms())
            if records:
                self._propose(records)

    def next_deadline_ms(self) -> float | None:
        """Return when to call `on_time`; None when nothing waits for time."""
        return self._controller.next_deadline_ms()

    def on_time(self, now_ms: float) -> None:
        """Decide whatever is due by now."""
        while self._controller.is_active:
            deadline_ms = self._controller.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                return
            records = self._controller.on_deadline(now_ms)
            if records:
                self._propose(records)

    def on_committed(self, image: MetadataImage) -> None:
        """Release the responses whose decisions are committed (rule 2)."""
        while self._parked and self._parked[0].offset <= image.offset:
            parked = self._parked.popleft()
            parked.deferred.complete(parked.response)


def new_uuid(rng: random.Random) -> bytes:
    """Return a random uuid (version 4) that Kafka does not reserve.

    Its text does not begin with a dash, which command lines would take for an option, as Kafka's.
    """
    while True:
        value = bytearray(rng.randbytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        if value[0] >> 2 != 0x3E:
            return bytes(value)
