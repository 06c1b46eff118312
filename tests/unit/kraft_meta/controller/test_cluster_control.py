"""Brokers: registration, sessions, fencing, controlled shutdown, producer ids."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.kraft_meta.controller.control import DEFAULT_FEATURES, registered_features
from kraftrio.kraft_meta.metadata.records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    UnregisterBrokerRequest,
)
from tests.unit.kraft_meta.controller.context import CLUSTER_ID, SESSION_MS, ControllerContext


def test_a_broker_registers_fenced_and_is_unfenced_when_it_has_read_so() -> None:
    """Its epoch is the offset of its registration; it must have applied that."""
    context = ControllerContext()
    epoch = context.register(1)
    broker = context.image.brokers[1]
    assert isinstance(context.log[epoch], RegisterBrokerRecord)
    assert (broker.broker_epoch, broker.fenced) == (epoch, True)
    assert broker.endpoint("PLAINTEXT") == ("PLAINTEXT", "h", 9093, 0)
    behind = context.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    ahead = context.heartbeat(1, current_metadata_offset=epoch)
    assert (ahead.is_caught_up, ahead.is_fenced) == (True, False)
    assert context.image.brokers[1].is_active


def test_another_cluster_is_refused() -> None:
    """INCONSISTENT_CLUSTER_ID, nothing recorded."""
    context = ControllerContext()
    assert context.try_register(1, cluster_id="x").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert context.last_records == []


def test_a_live_brokers_id_cannot_be_taken() -> None:
    """DUPLICATE_BROKER_REGISTRATION until the session of the first one ends."""
    context = ControllerContext()
    context.start_brokers(1)
    duplicate = context.try_register(1, incarnation=2)
    assert duplicate.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    context.sleep(SESSION_MS)
    assert context.try_register(1, incarnation=2).error_code == ErrorCode.NONE


def test_after_a_restart_of_the_controller_a_restarted_broker_need_not_wait() -> None:
    """This controller has not heard of the former incarnation: kill -9 and start again at once."""
    context = ControllerContext()
    context.start_brokers(1)
    context.create("t", [1])
    context.fail_over()
    context.register(1, incarnation=2)
    assert context.image.brokers[1].fenced
    assert context.partition("t").leader == -1
    context.heartbeat(1)
    assert context.partition("t").leader == 1


def test_registering_again_as_the_same_incarnation_amends_the_registration() -> None:
    """The broker epoch, its state and its leaderships stay; only what is new is recorded."""
    context = ControllerContext()
    context.start_brokers(1, racks="a")
    context.create("t", [1])
    epoch = context.image.brokers[1].broker_epoch
    assert context.register(1, rack="b") == epoch
    broker = context.image.brokers[1]
    assert (broker.rack, broker.fenced, broker.broker_epoch) == ("b", False, epoch)
    assert context.partition("t").leader == 1


def test_a_log_directory_belongs_to_one_broker() -> None:
    """A copied directory is found out; the broker's own next incarnation has it still."""
    context = ControllerContext()
    context.register(1, log_dirs=[b"a" * 16, b"b" * 16])
    for log_dirs in ([b"c" * 16, b"b" * 16], [b"c" * 16, b"c" * 16]):
        refused = context.try_register(2, log_dirs=log_dirs)
        assert refused.error_code == ErrorCode.INVALID_REGISTRATION
    context.register(1, incarnation=2, log_dirs=[b"a" * 16, b"b" * 16])


def test_registering_again_with_the_same_incarnation_changes_nothing() -> None:
    """The answer was lost, the registration was not."""
    context = ControllerContext()
    epoch = context.register(1)
    context.heartbeat(1)
    assert context.register(1) == epoch
    assert context.last_records == []
    assert not context.image.brokers[1].fenced


@pytest.mark.parametrize(
    ("lowest", "highest", "code"),
    [(7, 30, ErrorCode.NONE), (7, 29, ErrorCode.UNSUPPORTED_VERSION)],
)
def test_a_broker_must_support_the_finalized_features(
    lowest: int, highest: int, code: ErrorCode
) -> None:
    """A new cluster starts at metadata.version 30."""
    context = ControllerContext()
    features = {**DEFAULT_FEATURES, "metadata.version": (lowest, highest)}
    request = BrokerRegistrationRequest(
        broker_id=1, cluster_id=CLUSTER_ID, features=registered_features(features)
    )
    assert context.send(request).error_code == code


def test_heartbeats_of_strangers_are_refused() -> None:
    """Unknown ids and other epochs."""
    context = ControllerContext()
    assert context.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    epoch = context.register(1)
    response = context.heartbeat(1, broker_epoch=epoch + 1)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_and_its_leaderships_move() -> None:
    """broker.session.timeout.ms after its last heartbeat; the others stay."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    context.sleep(SESSION_MS - 1)
    context.heartbeat(2)
    assert not context.image.brokers[1].fenced
    context.sleep(1)
    assert context.image.brokers[1].fenced
    assert not context.image.brokers[2].fenced
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_after_a_failover_brokers_get_one_session_for_a_heartbeat() -> None:
    """The new controller begins a session for every unfenced broker."""
    context = ControllerContext()
    context.start_brokers(1)
    context.sleep(SESSION_MS - 1)
    context.fail_over()
    context.sleep(SESSION_MS - 1)
    assert not context.image.brokers[1].fenced
    context.sleep(1)
    assert context.image.brokers[1].fenced


def test_brokers_that_could_not_reach_the_controller_are_not_fenced() -> None:
    """A controller that stood still past the ends of sessions takes waiting heartbeats first."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.stand_still(SESSION_MS + 3000)
    assert context.run_deadlines() == []
    context.heartbeat(1)
    context.sleep(2999)
    assert not context.image.brokers[2].fenced
    context.sleep(1)
    assert context.image.brokers[2].fenced, "it has been silent for as long as nobody was heard"
    assert not context.image.brokers[1].fenced


def test_standing_still_again_and_again_prolongs_a_session_by_another_one_at_most() -> None:
    context = ControllerContext()
    context.start_brokers(1)
    context.stand_still(2 * SESSION_MS)
    assert context.run_deadlines() == []
    context.stand_still(2 * SESSION_MS)
    context.run_deadlines()
    assert context.image.brokers[1].fenced


def test_a_late_deadline_fences_while_heartbeats_of_others_arrive() -> None:
    """A controller that waits for its disk receives heartbeats all the same."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.stand_still(SESSION_MS + 3000)
    context.heartbeat(2)
    context.run_deadlines()
    assert context.image.brokers[1].fenced
    assert not context.image.brokers[2].fenced


def test_brokers_silent_together_are_judged_one_after_the_other() -> None:
    """The second to be fenced keeps the last ISR; no leader is left."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    context.sleep(SESSION_MS)
    partition = context.partition("t")
    assert (partition.leader, partition.isr) == (-1, (2,))


def test_leader_epochs_over_a_graceful_restart_go_from_0_to_2() -> None:
    """As Kafka's recorded log: leader gone at shutdown (1), back after the restart (2)."""
    context = ControllerContext()
    context.start_brokers(1)
    context.create("t", [1])
    assert context.partition("t").leader_epoch == 0
    first = context.heartbeat(1, want_shut_down=True)
    assert not first.should_shut_down
    assert context.image.brokers[1].in_controlled_shutdown
    assert (context.partition("t").leader, context.partition("t").leader_epoch) == (-1, 1)
    assert context.partition("t").isr == (1,)
    second = context.heartbeat(1, want_shut_down=True)
    assert second.should_shut_down
    assert context.image.brokers[1].fenced
    context.fail_over()
    context.register(1, incarnation=2)
    context.heartbeat(1)
    assert (context.partition("t").leader, context.partition("t").leader_epoch) == (1, 2)
    assert not context.image.brokers[1].in_controlled_shutdown


def test_a_broker_without_leaderships_may_go_at_once() -> None:
    """There is nothing to move; a fenced broker may go as well."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    assert context.heartbeat(1, want_shut_down=True).should_shut_down
    assert context.heartbeat(1, want_shut_down=True).should_shut_down


def test_controlled_shutdown_waits_until_the_others_know() -> None:
    """Leaders moved: the broker goes when the active brokers have read that."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    context.heartbeat(2)
    assert not context.heartbeat(1, want_shut_down=True).should_shut_down
    assert (context.partition("t").leader, context.partition("t").isr) == (2, (2,))
    assert not context.heartbeat(1, want_shut_down=True).should_shut_down
    context.heartbeat(2)
    response = context.heartbeat(1, want_shut_down=True)
    assert response.should_shut_down
    assert response.is_fenced


def test_brokers_that_shut_down_together_do_not_wait_for_each_other() -> None:
    """Who leaves as the last leaves its partitions without a leader, and goes as well."""
    context = ControllerContext()
    context.start_brokers(1, 2, 3)
    context.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for broker_id in (1, 2, 3):
        assert not context.heartbeat(broker_id, want_shut_down=True).should_shut_down
    assert [context.partition("t", index).leader for index in range(3)] == [-1, -1, -1]
    assert [context.partition("t", index).isr for index in range(3)] == [(3,), (3,), (3,)]
    for broker_id in (3, 1, 2):
        assert context.heartbeat(broker_id, want_shut_down=True).should_shut_down


def test_a_broker_that_shuts_down_neither_leads_nor_joins() -> None:
    """New partitions and ISR changes leave it out, elections do not find it."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    context.create("u", [2, 1])
    context.heartbeat(1, want_shut_down=True)
    assert context.partition("t").isr == (2,)
    assert context.alter_isr("t", [2, 1]).error_code == ErrorCode.INELIGIBLE_REPLICA
    context.create("v", [1, 2])
    assert (context.partition("v").leader, context.partition("v").isr) == (2, (2,))
    context.fence(2)
    assert context.partition("u").leader == -1


def test_a_broker_that_was_let_go_does_not_come_back_by_a_late_heartbeat() -> None:
    """It would be elected and be gone; its next incarnation is let in."""
    context = ControllerContext()
    context.start_brokers(1)
    context.create("t", [1])
    while not context.heartbeat(1, want_shut_down=True).should_shut_down:
        assert context.partition("t").leader == -1
    assert context.heartbeat(1).is_fenced
    assert context.partition("t").leader == -1
    context.register(1, incarnation=2)
    assert not context.heartbeat(1).is_fenced
    assert context.partition("t").leader == 1


def test_a_broker_that_leads_nothing_is_let_go_at_once_and_for_good() -> None:
    """It counts as leaving, not as one that died; a late heartbeat does not bring it back."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    assert context.heartbeat(1, want_shut_down=True).should_shut_down
    assert context.image.brokers[1].in_controlled_shutdown
    assert context.heartbeat(1).is_fenced


def test_a_new_controller_lets_a_broker_go_that_was_shutting_down() -> None:
    """It does not know what the others have read; the leaderships are gone, that is enough."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    assert not context.heartbeat(1, want_shut_down=True).should_shut_down
    context.fail_over()
    assert context.heartbeat(1, want_shut_down=True).should_shut_down


def lose(context: ControllerContext, broker_id: int, broker_epoch: int | None = None) -> int:
    """Tell the controller that a broker's process is gone; return how many records follow."""
    if broker_epoch is None:
        broker_epoch = context.image.brokers[broker_id].broker_epoch
    records = context.controller.broker_connection_lost(broker_id, broker_epoch, context.now_ms)
    context.commit(records)
    return len(records)


def test_a_broker_known_to_be_gone_is_fenced_at_once() -> None:
    """Ahead of its session's end; its next incarnation is let in without a wait."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    assert lose(context, 1) == 2
    assert context.image.brokers[1].fenced
    assert (context.partition("t").leader, context.partition("t").isr) == (2, (2,))
    assert lose(context, 1) == 0
    context.register(1, incarnation=2)
    assert not context.heartbeat(1).is_fenced


def test_a_broker_fenced_in_error_comes_back_by_its_next_heartbeat() -> None:
    """A closed connection is not proof."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    lose(context, 1)
    assert not context.heartbeat(1).is_fenced
    context.sleep(SESSION_MS - 1)
    assert not context.image.brokers[1].fenced
    context.sleep(1)
    assert context.image.brokers[1].fenced


def test_another_incarnation_is_not_fenced_for_the_former_one() -> None:
    """The epoch says which is gone. Unknown brokers, and inactive controllers, change nothing."""
    context = ControllerContext()
    context.start_brokers(1)
    epoch = context.image.brokers[1].broker_epoch
    assert lose(context, 1, epoch - 1) == 0
    assert lose(context, 9, 1) == 0
    assert not context.image.brokers[1].fenced
    context.controller.deactivate()
    assert context.controller.broker_connection_lost(1, epoch, 0) == []


def test_a_broker_can_ask_to_be_fenced() -> None:
    """want_fence fences at once."""
    context = ControllerContext()
    context.start_brokers(1)
    context.fence(1)
    assert isinstance(context.last_records[-1], BrokerRegistrationChangeRecord)
    assert context.image.brokers[1].fenced


def test_an_unregistered_broker_is_gone() -> None:
    """Its leaderships move; unregistering it twice is an error; it may register again."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    context.create("t", [1, 2])
    assert context.send(UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.NONE
    assert context.image.broker(1) is None
    assert context.partition("t").leader == 2
    again = context.send(UnregisterBrokerRequest(broker_id=1))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    context.register(1)


def allocate(context: ControllerContext, broker_id: int, **options: Any) -> Any:
    broker = context.image.broker(broker_id)
    options.setdefault("broker_epoch", -1 if broker is None else broker.broker_epoch)
    return context.send(AllocateProducerIdsRequest(broker_id=broker_id, **options))


def test_producer_ids_are_given_out_once() -> None:
    """Blocks of 1000 follow each other, also over a failover."""
    context = ControllerContext()
    context.start_brokers(1, 2)
    blocks = [allocate(context, 1), allocate(context, 2)]
    context.fail_over()
    blocks.append(allocate(context, 1))
    assert [(b.producer_id_start, b.producer_id_len) for b in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]


def test_producer_ids_are_for_registered_brokers() -> None:
    """An unknown id and an old epoch get nothing."""
    context = ControllerContext()
    context.register(1)
    assert allocate(context, 9).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert allocate(context, 1, broker_epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert context.image.next_producer_id == 0


def test_heartbeats_that_change_nothing_record_nothing() -> None:
    """A quiet cluster does not grow its log."""
    context = ControllerContext()
    context.start_brokers(1)
    end = len(context.log)
    for _ in range(3):
        context.sleep(2000)
        broker = context.image.brokers[1]
        context.send(
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=broker.broker_epoch,
                current_metadata_offset=context.image.offset,
            )
        )
    assert len(context.log) == end
