"""A batch of a Spark query in one transaction: written whole, and once however often it is made.

Spark makes a batch again when it does not know that the batch was done: the driver died after the
rows were written and before the checkpoint said so. Rules:
1. All rows of a batch are in one transaction, so that a read_committed reader sees all of them or
   none. A transaction has one producer: the tasks hand their rows to the driver, which sends them.
   A task that is repeated, or done twice at a time, sends nothing twice either.
2. The transactional id is the query's own, the same after a restart. A driver that begins with it
   ends what an earlier one left open, and fences that one, should it be alive.
3. With the rows the transaction commits the number of the batch, as an offset of the group that has
   the name of the transactional id: the number of the next batch, for partition 0 of one of the
   topics. A writer that has fenced looks there, and leaves out a batch that is committed already.
   The broker forgets an offset after offsets.retention.minutes: a driver that died has that
   long to come back.

Called by: `spark/sink`. Needs neither Spark nor Arrow.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.errors import ConfigError
from kraftrio.clients.group_offsets import OffsetAndMetadata
from kraftrio.clients.producer.producer import Producer
from kraftrio.clients.security import SECURITY_NAMES
from kraftrio.clients.spark.options import boolean
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

_ID_SETTING: Final = "transactional_id"
_ID_PREFIX: Final = "kraftrio-spark-"
# What must be the same in every client of the query, by which a broker is reached.
_SHARED_SETTINGS: Final = ("client_id", "request_timeout_ms", *SECURITY_NAMES)

Fill = Callable[[Producer], Awaitable[Iterable[str]]]
"""Sends a batch; returns the topics that it went to."""


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """What the options of a query say about its transactions.

    Args:
        transactional_id: None: one is made up, from the id of a streaming query.
        batch_id: of a batch query that writes a numbered batch (foreachBatch).
    """

    transactional_id: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Which batch it is: of whom, and its number; None: it is made once only."""

    transactional_id: str
    batch_id: int | None


def transaction_options(
    values: Mapping[str, str], settings: dict[str, Any], *, streaming: bool
) -> TransactionOptions | None:
    """Take the options that are about transactions; None: the query writes without any.

    Args:
        values: all options, by their names in lower case.
        settings: the producer's, from which the transactional id is taken out.

    Raises:
        ConfigError: they contradict each other.
    """
    transactional_id = settings.pop(_ID_SETTING, None)
    batch_text = values.get("batchid")
    if not boolean(values, "transactional", False):
        for name, given in (("kafka.transactional.id", transactional_id), ("batchId", batch_text)):
            if given is not None:
                raise ConfigError(f"{name} needs the option transactional")
        return None
    if batch_text is None:
        return TransactionOptions(transactional_id)
    if streaming:
        raise ConfigError("batchId is for batch queries: Spark numbers the batches of a stream")
    if transactional_id is None:
        raise ConfigError("batchId needs kafka.transactional.id, which says whose batch it is")
    if not (batch_text.isascii() and batch_text.isdigit()):
        raise ConfigError(f"batchId must be a whole number, not {batch_text!r}")
    return TransactionOptions(transactional_id, int(batch_text))


def id_of_query(query_id: str) -> str:
    """Return the transactional id of a streaming query: its checkpoint keeps the query's id."""
    return _ID_PREFIX + query_id


def settings_with_id(settings: Mapping[str, Any], transactional_id: str) -> dict[str, Any]:
    """Return the settings of the producer that writes a batch."""
    return {**settings, _ID_SETTING: transactional_id}


def note_of(batch_id: int, topics: Iterable[str]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset by which a transaction says which batch it holds."""
    where = TopicPartition(min(topics), 0)
    return {where: OffsetAndMetadata(batch_id + 1, metadata=f"batch {batch_id} of a Spark query")}


def is_noted(batch_id: int, offsets: Iterable[int]) -> bool:
    """Return whether a batch, or a later one, is committed, by all offsets of its group."""
    return batch_id < max(offsets, default=0)


async def write_once(
    bootstrap_servers: str, settings: Mapping[str, Any], batch: BatchIdentity, fill: Fill
) -> bool:
    """Write a batch in one transaction, unless it is committed already.

    Returns:
        Whether it was written now.

    Raises:
        TransactionAbortedError: it could not be committed, and nothing of it counts.
        FatalProducerError: another driver writes for the query, or, as `TransactionInDoubtError`,
            it is not known whether the batch is committed: writing it again finds out.
    """
    producer_settings = settings_with_id(settings, batch.transactional_id)
    async with Producer(bootstrap_servers, **producer_settings) as producer:
        if batch.batch_id is not None and is_noted(
            batch.batch_id, await _noted(bootstrap_servers, settings, batch.transactional_id)
        ):
            logger.info(
                "Batch %d of %s is committed already: it is not written again",
                batch.batch_id,
                batch.transactional_id,
            )
            return False
        async with producer.transaction() as transaction:
            topics = await fill(producer)
            if batch.batch_id is not None:
                note = note_of(batch.batch_id, topics)
                await transaction.send_offsets(note, batch.transactional_id)
    return True


async def _noted(bootstrap_servers: str, settings: Mapping[str, Any], group_id: str) -> list[int]:
    """Return the numbers that the transactions of a query have committed."""
    shared = {name: settings[name] for name in _SHARED_SETTINGS if name in settings}
    async with Admin(bootstrap_servers, **shared) as admin:
        found = await admin.list_group_offsets(group_id, require_stable=True)
    return [committed.offset for committed in found.values() if committed is not None]
