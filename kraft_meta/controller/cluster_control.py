"""Brokers in the cluster: registration, heartbeats, fencing, controlled shutdown, producer ids.

Owns: `ClusterControl`, whose soft state (when each broker was last heard of, how far it has read)
is rebuilt by each active controller and never recorded. Rules, as KIP-631:
1. A broker's epoch is the offset of its registration record. A new incarnation takes the id over
   unless the former one was heard of within its session; what it led is led by others from then.
2. A broker starts fenced; it is unfenced when it asks and has read its own registration, and fenced
   when its session ends or it asks. A fenced broker leads nothing.
3. Controlled shutdown: leaderships move away first; the broker may go once it leads nothing and the
   remaining brokers have read so. The only way back is to register again.
4. A broker that registers again as the same incarnation amends its registration: its epoch and
   its state stay. Log directories that it no longer names have failed.
5. A session starts with a heartbeat or registration that this controller saw. After a change of
   controllers brokers get one session timeout to be heard of, yet a restarted broker need not
   wait for the session of its previous incarnation.
6. A session that ended while this controller heard nobody (its process stood still) goes on for as
   long as that was, at most for another session: heartbeats that wait are let in before anybody is
   fenced. It shows by a deadline that is looked at late, with nothing heard since.
7. Log directories that a heartbeat reports offline are dealt with (directory_control.py) before
   anything else that it asks for, which waits for the next one. A broker with none left is fenced.

Called by: controller.py. Kafka's counterpart: ClusterControlManager, BrokerHeartbeatManager.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraftrio.kraft_meta.controller.control import (
    METADATA_VERSION,
    ControllerConfig,
    ControllerResult,
    DecisionContext,
    check_broker_epoch,
)
from kraftrio.kraft_meta.controller.directory_control import (
    changes_when_directories_fail,
    registration_without,
)
from kraftrio.kraft_meta.controller.partition_index import PartitionIndex
from kraftrio.kraft_meta.controller.replication_control import (
    changes_when_broker_leaves,
    changes_when_broker_returns,
)
from kraftrio.kraft_meta.metadata.image import BrokerImage, MetadataImage
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kraftrio.wire.primitives import uuid_to_text

LATE_MS = 100.0  # a deadline is looked at later than this only by a process that stood still


@dataclass(slots=True)
class _Contact:
    """What this controller knows of one incarnation of a broker."""

    broker_epoch: int
    session_deadline_ms: float
    is_seen: bool
    """Whether it has registered or sent a heartbeat since this controller became active."""
    grace_ms: float
    """By how much the session may yet be prolonged (rule 6)."""
    metadata_offset: int = -1
    controlled_shutdown_offset: int | None = None


class ClusterControl:
    """Decides about brokers; keeps their sessions."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._contacts: dict[int, _Contact] = {}
        self._listened_ms = 0.0  # when this controller last did anything

    def activate(self, image: MetadataImage, now_ms: float) -> None:
        """Start the sessions of a controller that has just become active (rule 5)."""
        self._listened_ms = now_ms
        self._contacts = {
            broker.broker_id: self._new_contact(broker.broker_epoch, now_ms, is_seen=False)
            for broker in image.alive_brokers()
        }

    def _new_contact(self, broker_epoch: int, now_ms: float, *, is_seen: bool) -> _Contact:
        timeout_ms = self._config.broker_session_timeout_ms
        return _Contact(broker_epoch, now_ms + timeout_ms, is_seen, grace_ms=timeout_ms)

    # ---- registration

    def register_broker(
        self, request: BrokerRegistrationRequest, context: DecisionContext
    ) -> ControllerResult:
        """Take a broker into the cluster, fenced."""
        try:
            return self._register_broker(request, context)
        except KafkaError as error:
            return ControllerResult([], BrokerRegistrationResponse(error_code=error.code))

    def _register_broker(
        self, request: BrokerRegistrationRequest, context: DecisionContext
    ) -> ControllerResult:
        if request.cluster_id != context.image.cluster_id:
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, None)
        _check_finalized_features(request, context.image)
        _check_directories(request, context.image)
        record = _registration(request, context)
        existing = context.image.broker(request.broker_id)
        records: list[MetadataRecord] = []
        if existing is not None and existing.incarnation_id == request.incarnation_id:
            return self._amend(existing, record, context)
        if existing is not None and self._has_valid_session(existing, context.now_ms):
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, None)
        records.append(record)
        if existing is not None:
            records += changes_when_broker_leaves(
                self._config, context.image, context.index, request.broker_id
            )
        self._contacts[request.broker_id] = self._new_contact(
            record.broker_epoch, context.now_ms, is_seen=True
        )
        return ControllerResult(
            records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
        )

    def _amend(
        self, existing: BrokerImage, record: RegisterBrokerRecord, context: DecisionContext
    ) -> ControllerResult:
        # Usually the answer to its first attempt was lost, and nothing has changed.
        amended = replace(
            record,
            broker_epoch=existing.broker_epoch,
            fenced=existing.fenced,
            in_controlled_shutdown=existing.in_controlled_shutdown,
        )
        records: list[MetadataRecord] = []
        if not _is_same_registration(existing, record):
            records.append(amended)
            failed = [one for one in existing.log_dirs if one not in record.log_dirs]
            records += changes_when_directories_fail(
                self._config, context.image, context.index, existing, failed
            )
        self._contacts[existing.broker_id] = self._new_contact(
            existing.broker_epoch, context.now_ms, is_seen=True
        )
        return ControllerResult(
            records, BrokerRegistrationResponse(broker_epoch=existing.broker_epoch)
        )

    def _has_valid_session(self, broker: BrokerImage, now_ms: float) -> bool:
        contact = self._contacts.get(broker.broker_id)
        return (
            contact is not None
            and contact.is_seen
            and contact.broker_epoch == broker.broker_epoch
            and contact.session_deadline_ms > now_ms
            and not broker.fenced
            and not broker.in_controlled_shutdown
        )

    def unregister_broker(
        self, request: UnregisterBrokerRequest, context: DecisionContext
    ) -> ControllerResult:
        """Remove a broker for good; its replicas stay assigned until someone reassigns them."""
        broker = context.image.broker(request.broker_id)
        if broker is None:
            response = UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            )
            return ControllerResult([], response)
        records = changes_when_broker_leaves(
            self._config, context.image, context.index, broker.broker_id
        )
        records.append(UnregisterBrokerRecord(request.broker_id, broker.broker_epoch))
        self._contacts.pop(request.broker_id, None)
        return ControllerResult(records, UnregisterBrokerResponse(error_message=None))

    # ---- heartbeats

    def heartbeat(
        self, request: BrokerHeartbeatRequest, context: DecisionContext
    ) -> ControllerResult:
        """Keep a broker's session, and move it between its states as it asks."""
        try:
            check_broker_epoch(context.image, request.broker_id, request.broker_epoch)
        except KafkaError as error:
            return ControllerResult([], BrokerHeartbeatResponse(error_code=error.code))
        broker = context.image.brokers[request.broker_id]
        contact = self._contacts.get(request.broker_id)
        if contact is None or contact.broker_epoch != broker.broker_epoch:
            contact = self._new_contact(broker.broker_epoch, context.now_ms, is_seen=True)
            self._contacts[request.broker_id] = contact
        contact.is_seen = True
        contact.session_deadline_ms = context.now_ms + self._config.broker_session_timeout_ms
        contact.grace_ms = self._config.broker_session_timeout_ms
        contact.metadata_offset = request.current_metadata_offset
        records, fenced, should_shut_down = self._next_state(broker, contact, request, context)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.broker_epoch,
            is_fenced=fenced,
            should_shut_down=should_shut_down,
        )
        return ControllerResult(records, response)

    def _next_state(
        self,
        broker: BrokerImage,
        contact: _Contact,
        request: BrokerHeartbeatRequest,
        context: DecisionContext,
    ) -> tuple[list[MetadataRecord], bool, bool]:
        """Return the records, whether the broker is fenced then, and whether it may go."""
        is_caught_up = request.current_metadata_offset >= broker.broker_epoch
        failed = [one for one in broker.log_dirs if one in request.offline_log_dirs]
        serves_nothing = bool(failed) and len(failed) == len(broker.log_dirs)
        if broker.fenced:
            if request.want_shut_down:
                return [], True, True
            # A late heartbeat must not bring back a broker that was let go: only a new incarnation
            # may.
            if (
                request.want_fence
                or not is_caught_up
                or broker.in_controlled_shutdown
                or serves_nothing
            ):
                return [], True, False
        if failed and not serves_nothing:
            return self._without_directories(broker, failed, context), broker.fenced, False
        if broker.fenced:
            return self._unfence(broker, context), False, False
        if request.want_fence or serves_nothing:
            return self._fence(broker, context.image, context.index), True, request.want_shut_down
        if not (request.want_shut_down or broker.in_controlled_shutdown):
            return [], False, False
        if not context.index.leads_any(broker.broker_id) and self._others_know(
            broker, contact, context.image
        ):
            # Told as leaving also where it led nothing: nobody is to take it for dead, and no late
            # heartbeat brings it back.
            records = self._fence(broker, context.image, context.index, is_leaving=True)
            return records, True, True
        if broker.in_controlled_shutdown:
            return [], False, False
        records = [
            BrokerRegistrationChangeRecord(
                broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
            )
        ]
        records += changes_when_broker_leaves(
            self._config, context.image, context.index, broker.broker_id
        )
        contact.controlled_shutdown_offset = context.next_offset + len(records) - 1
        return records, False, False

    def _others_know(self, broker: BrokerImage, contact: _Contact, image: MetadataImage) -> bool:
        """Whether the active brokers have read that this one's leaderships moved (rule 3)."""
        if not broker.in_controlled_shutdown or contact.controlled_shutdown_offset is None:
            return True
        for other in image.alive_brokers():
            if other.broker_id == broker.broker_id or not other.is_active:
                continue
            known = self._contacts.get(other.broker_id)
            if known is None or known.metadata_offset < contact.controlled_shutdown_offset:
                return False
        return True

    def _fence(
        self,
        broker: BrokerImage,
        image: MetadataImage,
        index: PartitionIndex,
        *,
        is_leaving: bool = False,
    ) -> list[MetadataRecord]:
        contact = self._contacts.get(broker.broker_id)
        if contact is not None:
            contact.controlled_shutdown_offset = None
        records = changes_when_broker_leaves(self._config, image, index, broker.broker_id)
        records.append(
            BrokerRegistrationChangeRecord(
                broker.broker_id,
                broker.broker_epoch,
                fenced=True,
                in_controlled_shutdown=is_leaving or None,
            )
        )
        return records

    def _without_directories(
        self, broker: BrokerImage, failed: list[bytes], context: DecisionContext
    ) -> list[MetadataRecord]:
        """Rule 7."""
        return [
            registration_without(broker, failed),
            *changes_when_directories_fail(
                self._config, context.image, context.index, broker, failed
            ),
        ]

    def _unfence(self, broker: BrokerImage, context: DecisionContext) -> list[MetadataRecord]:
        records: list[MetadataRecord] = [
            BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=False)
        ]
        records += changes_when_broker_returns(
            self._config, context.image, context.index, broker.broker_id
        )
        return records

    # ---- sessions

    def next_deadline_ms(self) -> float | None:
        """Return when the next session ends."""
        return min((c.session_deadline_ms for c in self._contacts.values()), default=None)

    def fence_expired(
        self, image: MetadataImage, index: PartitionIndex, now_ms: float
    ) -> list[MetadataRecord]:
        """Fence one broker whose session ended; the next is judged when that one is gone."""
        self._prolong_sessions_after_standstill(now_ms)
        for broker_id in sorted(self._contacts):
            contact = self._contacts[broker_id]
            if contact.session_deadline_ms <= now_ms:
                records = self.fence(image, index, broker_id, contact.broker_epoch)
                self._contacts.pop(broker_id, None)
                if records:
                    return records
        return []

    def listened(self, now_ms: float) -> None:
        """Note that requests arrive."""
        self._listened_ms = now_ms

    def _prolong_sessions_after_standstill(self, now_ms: float) -> None:
        """Rule 6."""
        for contact in self._contacts.values():
            standstill_ms = now_ms - max(contact.session_deadline_ms, self._listened_ms)
            if contact.session_deadline_ms <= now_ms and standstill_ms >= LATE_MS:
                prolonged_ms = min(standstill_ms, contact.grace_ms)
                contact.grace_ms -= prolonged_ms
                if prolonged_ms > 0:
                    contact.session_deadline_ms = now_ms + prolonged_ms
        self._listened_ms = now_ms

    def fence(
        self, image: MetadataImage, index: PartitionIndex, broker_id: int, broker_epoch: int
    ) -> list[MetadataRecord]:
        """Fence that incarnation of a broker, if it is there and not fenced; forget its session."""
        broker = image.broker(broker_id)
        if broker is None or broker.fenced or broker.broker_epoch != broker_epoch:
            return []
        records = self._fence(broker, image, index)
        self._contacts.pop(broker_id, None)
        return records

    # ---- producer ids

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, context: DecisionContext
    ) -> ControllerResult:
        """Give a broker a block of producer ids of its own (KIP-730)."""
        try:
            check_broker_epoch(context.image, request.broker_id, request.broker_epoch)
        except KafkaError as error:
            return ControllerResult([], AllocateProducerIdsResponse(error_code=error.code))
        start, size = context.image.next_producer_id, self._config.producer_id_block_size
        record = ProducerIdsRecord(request.broker_id, request.broker_epoch, start + size)
        response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=size)
        return ControllerResult([record], response)


def _registration(
    request: BrokerRegistrationRequest, context: DecisionContext
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=context.next_offset,
        endpoints=tuple(
            Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners
        ),
        features=tuple(
            FeatureRange(f.name, f.min_supported_version, f.max_supported_version)
            for f in sorted(request.features, key=lambda f: f.name)
        ),
        rack=request.rack,
        log_dirs=tuple(request.log_dirs),
    )


def _check_directories(request: BrokerRegistrationRequest, image: MetadataImage) -> None:
    """Raise INVALID_REGISTRATION for a directory that is named twice or another broker's (KIP-858).

    The usual cause: a broker's directory was copied to start another one.
    """
    if len(frozenset(request.log_dirs)) < len(request.log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in image.brokers.values():
        if broker.broker_id != request.broker_id:
            for directory in request.log_dirs:
                if directory in broker.log_dirs:
                    raise KafkaError(
                        ErrorCode.INVALID_REGISTRATION,
                        f"Broker {broker.broker_id} is already registered with directory "
                        f"{uuid_to_text(directory)}",
                    )


def _is_same_registration(broker: BrokerImage, record: RegisterBrokerRecord) -> bool:
    return (broker.endpoints, broker.features, broker.rack, broker.log_dirs) == (
        record.endpoints,
        record.features,
        record.rack,
        record.log_dirs,
    )


def _check_finalized_features(request: BrokerRegistrationRequest, image: MetadataImage) -> None:
    """Raise UNSUPPORTED_VERSION unless the broker supports every finalized level.

    A broker that names no range of a feature knows level 0 only: it is of a release from before the
    feature. One that names no metadata.version says nothing about it.
    """
    named = {
        one.name: (one.min_supported_version, one.max_supported_version) for one in request.features
    }
    for name in sorted(image.features):
        level = image.features[name]
        lowest, highest = named.get(name, (0, level if name == METADATA_VERSION else 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {lowest} and {highest}, inclusive.",
            )
