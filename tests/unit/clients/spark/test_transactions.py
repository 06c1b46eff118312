"""Transactions of a Spark query: what its options say, and which batches are committed already."""

from __future__ import annotations

import pytest

from kraftrio.clients.errors import ConfigError
from kraftrio.clients.spark.transactions import (
    TransactionOptions,
    id_of_query,
    is_noted,
    note_of,
    settings_with_id,
    transaction_options,
)
from kraftrio.wire.primitives import TopicPartition

GOOD: list[tuple[dict[str, str], str | None, bool, TransactionOptions | None]] = [
    ({}, None, True, None),
    ({"transactional": "false"}, None, False, None),
    ({"transactional": "True"}, None, True, TransactionOptions()),
    ({"transactional": "true"}, "mine", True, TransactionOptions("mine")),
    ({"transactional": "true", "batchid": "0"}, "mine", False, TransactionOptions("mine", 0)),
]


@pytest.mark.parametrize(("values", "name", "streaming", "expected"), GOOD)
def test_options(
    values: dict[str, str], name: str | None, streaming: bool, expected: TransactionOptions | None
) -> None:
    """Without the option nothing is in a transaction; the id leaves the producer's settings."""
    settings = {"linger_ms": 20} | ({} if name is None else {"transactional_id": name})
    assert transaction_options(values, settings, streaming=streaming) == expected
    assert settings == {"linger_ms": 20}
    assert settings_with_id(settings, "id") == {"linger_ms": 20, "transactional_id": "id"}


BAD: list[tuple[dict[str, str], str | None, bool, str]] = [
    ({}, "mine", False, "kafka.transactional.id needs the option transactional"),
    ({"batchid": "1"}, None, False, "batchId needs the option transactional"),
    ({"transactional": "yes"}, None, False, "transactional"),
    ({"transactional": "true", "batchid": "1"}, "mine", True, "Spark numbers the batches"),
    ({"transactional": "true", "batchid": "1"}, None, False, "needs kafka.transactional.id"),
    ({"transactional": "true", "batchid": "-1"}, "mine", False, "must be a whole number"),
    ({"transactional": "true", "batchid": "²"}, "mine", False, "must be a whole number"),
]


@pytest.mark.parametrize(("values", "name", "streaming", "sentence"), BAD)
def test_contradictions(
    values: dict[str, str], name: str | None, streaming: bool, sentence: str
) -> None:
    """Each is said in one sentence."""
    settings = {} if name is None else {"transactional_id": name}
    with pytest.raises(ConfigError, match=sentence):
        transaction_options(values, settings, streaming=streaming)


def test_the_id_of_a_query_lasts() -> None:
    """It is made of the id that the checkpoint keeps, and of nothing that a restart changes."""
    assert id_of_query("4711") == id_of_query("4711") == "kraftrio-spark-4711"
    assert id_of_query("4711") != id_of_query("4712")


@pytest.mark.parametrize(
    ("batch_id", "offsets", "noted"),
    [(0, [], False), (0, [1], True), (1, [1], False), (4, [3, 5, 2], True), (5, [3, 5, 2], False)],
)
def test_which_batches_are_committed(batch_id: int, offsets: list[int], noted: bool) -> None:
    """Those up to the latest note, in whichever topic it is."""
    assert is_noted(batch_id, offsets) is noted


def test_a_batch_notes_itself() -> None:
    """In one partition of its topics, whatever the order they were found in."""
    for topics in (["b", "a"], ["a", "b"]):
        ((where, offset),) = note_of(7, topics).items()
        assert where == TopicPartition("a", 0)
        assert is_noted(7, [offset.offset])
        assert not is_noted(8, [offset.offset])
