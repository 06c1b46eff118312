"""Producer ids and epochs: who may go on with them, and what each end makes of them."""

from __future__ import annotations

import pytest

from kraftrio.broker.coordinator.transactions.producer_epochs import (
    LAST_CLIENT_EPOCH,
    ProducerIdentity,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.primitives import ProducerIdAndEpoch
from kraftrio.wire.records.batch import MAX_PRODUCER_EPOCH

FENCED = ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("identity", "expected", "epoch", "last_epoch"),
    [
        (ProducerIdentity(5), None, 0, -1),
        (ProducerIdentity(5, 3, 2), None, 4, -1),
        (ProducerIdentity(5, 3, 2), (5, 3), 4, 3),
        (ProducerIdentity(5, 3, 2), (5, 2), 3, 2),  # a retry
        (ProducerIdentity(5, 3, -1), (5, 2), FENCED, 0),  # another producer came in between
        (ProducerIdentity(5, 3, 2), (5, 1), FENCED, 0),
        (ProducerIdentity(5, 3, 2), (5, 4), FENCED, 0),
        (ProducerIdentity(5), (9, 7), 0, -1),  # an id that was forgotten
    ],
)
def test_epoch_that_a_starting_producer_gets(
    identity: ProducerIdentity,
    expected: tuple[int, int] | None,
    epoch: int | ErrorCode,
    last_epoch: int,
) -> None:
    """As KIP-360 has it: the current epoch goes on, the previous one is a retry."""
    given = None if expected is None else ProducerIdAndEpoch(*expected)
    initialized = identity.initialized(given)
    if isinstance(initialized, ErrorCode):
        assert initialized is epoch
    else:
        assert (initialized.epoch, initialized.last_epoch) == (epoch, last_epoch)
        assert (initialized.producer_id, initialized.previous_id) == (5, 5)


@pytest.mark.parametrize(
    ("identity", "expected", "is_accepted"),
    [
        (ProducerIdentity(5, 3), (5, 0), True),  # the epoch is looked at later
        (ProducerIdentity(5, 3, previous_id=4), (4, 3), False),
        (ProducerIdentity(5, 0, previous_id=4), (4, LAST_CLIENT_EPOCH), True),
        (ProducerIdentity(5, 0, previous_id=4), (4, LAST_CLIENT_EPOCH - 1), False),
        (ProducerIdentity(5), (4, 3), True),
    ],
)
def test_producer_ids_that_may_start_again(
    identity: ProducerIdentity, expected: tuple[int, int], is_accepted: bool
) -> None:
    assert identity.accepts_id_of(ProducerIdAndEpoch(*expected)) is is_accepted


@pytest.mark.parametrize(
    ("epoch", "expected", "needs_new_id"),
    [
        (LAST_CLIENT_EPOCH - 1, None, False),
        (LAST_CLIENT_EPOCH, None, True),
        (MAX_PRODUCER_EPOCH, None, True),
        (LAST_CLIENT_EPOCH, (5, LAST_CLIENT_EPOCH), True),
        (LAST_CLIENT_EPOCH, (5, LAST_CLIENT_EPOCH - 1), False),  # a retry, or fenced
    ],
)
def test_exhausted_epochs_need_another_producer_id(
    epoch: int, expected: tuple[int, int] | None, needs_new_id: bool
) -> None:
    """No client gets the last epoch, so that the coordinator can always fence it (G02)."""
    given = None if expected is None else ProducerIdAndEpoch(*expected)
    assert ProducerIdentity(5, epoch).needs_new_id(given) is needs_new_id


def test_rotation_remembers_the_epoch_of_who_asked() -> None:
    identity = ProducerIdentity(5, LAST_CLIENT_EPOCH, previous_id=5)
    asked = ProducerIdAndEpoch(5, LAST_CLIENT_EPOCH)
    assert identity.rotated(8, asked) == (8, 0, LAST_CLIENT_EPOCH, 5, -1)
    assert identity.rotated(8, None) == (8, 0, -1, 5, -1)


def test_ends_by_transaction_version() -> None:
    """Version 2 bumps the epoch with each end; the next producer id is taken when it is done."""
    identity = ProducerIdentity(5, 3, 2)
    assert identity.ending(0)[:3] == (5, 3, 2)
    assert identity.ending(2)[:3] == (5, 4, 3)
    assert identity.ending(2).ended(2)[:3] == (5, 4, 3)
    exhausted = ProducerIdentity(5, LAST_CLIENT_EPOCH)
    ending = exhausted.ending(2, next_id=8)
    assert ending == (5, MAX_PRODUCER_EPOCH, LAST_CLIENT_EPOCH, 5, 8)
    assert ending.ended(2) == (8, 0, LAST_CLIENT_EPOCH, 5, -1)


@pytest.mark.parametrize(
    ("epoch", "fenced"), [(3, 4), (LAST_CLIENT_EPOCH, MAX_PRODUCER_EPOCH), (32767, 32767)]
)
def test_fencing_bumps_once_and_never_overflows(epoch: int, fenced: int) -> None:
    identity = ProducerIdentity(5, epoch, 1).fenced()
    assert (identity.epoch, identity.last_epoch) == (fenced, -1)
    assert identity.ended(0).epoch == fenced
    assert ProducerIdentity(5, epoch).ending(2).epoch == fenced
