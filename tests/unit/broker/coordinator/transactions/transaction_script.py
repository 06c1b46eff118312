"""Runs the commands of traces/*.txt: one request each to a transactional id in a known state.

A command is a state and a request. The state is made again for each of them, so that the order of
commands does not matter:

    Absent       the id does not exist
    Empty        its second producer has started, with epoch 1
    Bumped       the same, but the producer gave the epoch it had (KIP-360)
    Ongoing      Empty, and t-0 was added; Ongoing2: by a broker (transaction version 2)
    Committed, Aborted    Ongoing, and ended by EndTxn 4; Committed2, Aborted2: by EndTxn 5
    Fenced       Ongoing, and aborted for a newer producer
    Epoch32766   Empty, but with that epoch; Ongoing32766, Committed32766 ... go on from there

The request names its API's version and who sends it, in relation to the producer of the id:

    init VERSION [WHO] [timeout=MS]         InitProducerId
    add VERSION WHO PARTITION...            AddPartitionsToTxn
    verify VERSION WHO PARTITION...         AddPartitionsToTxn that only verifies
    offsets VERSION WHO                     AddOffsetsToTxn
    end VERSION WHO commit|abort            EndTxn

WHO is `current`, `previous` or `next` (epochs of the same producer id), `former` (the id and epoch
of before the last step), `other` (another producer id) or `half` (an id without epoch). The trace
is the code, the producer id (same or new) and epoch of the answer if it has them, and the state of
the id once its markers are written.

How requests get to a coordinator, and how markers are waited for, is up to the subclass.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import InitProducerIdRequest
from kraftrio.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)

Producer = tuple[int, int]

_ABSENT: Producer = (987_654_321, 5)
_ENDED = {"Committed": "commit", "Aborted": "abort"}


class TransactionScript(ABC):
    """A coordinator, and the transactional id of the command at hand."""

    topic = "t"

    def __init__(self) -> None:
        self._ids = count(1)
        self._id = ""
        self._producer = self._former = _ABSENT

    @abstractmethod
    def ask(self, request: Any, version: int) -> Any:
        """Send a request; its response."""

    @abstractmethod
    def settle(self, transactional_id: str) -> str:
        """Wait until nothing is under way with an id; the name of its state, or "absent"."""

    def new_id(self) -> str:
        """A transactional id that was not used before."""
        return f"id-{next(self._ids)}"

    def run(self, command: str) -> Iterator[str]:
        """Run a command; yield its trace."""
        state, name, *words = command.split()
        self._id = self.new_id()
        self._make(state)
        before = self._producer
        send: Callable[..., list[str]] = getattr(self, f"_{name}")
        answer = send(*words)
        after = self.settle(self._id)
        code, *producer = answer
        if producer:
            code += " same" if int(producer[0]) == before[0] else " new"
            code += f" {producer[1]}"
        yield f"{code} -> {after}"

    # --- states ---

    def _make(self, state: str) -> None:
        found = re.fullmatch("([A-Za-z]+?)([0-9]*)", state)
        assert found is not None
        kind, number = found[1], int(found[2] or 0)
        self._producer = self._former = _ABSENT
        if kind == "Absent":
            return
        if number > 2:
            self.preset(number)
        else:
            self._start()
            self._start(*(["current"] if kind == "Bumped" else []))
        if kind in ("Epoch", "Empty", "Bumped"):
            return
        is_new_client = kind == "Ongoing" and number == 2
        self._expect_none(self._add("5" if is_new_client else "3", "current", "t-0"))
        if kind == "Fenced":
            assert self._init("5")[0] == "CONCURRENT_TRANSACTIONS"
            self.settle(self._id)
            self._become(self._producer[0], self._producer[1] + 1)
        elif kind in _ENDED:
            ended = self._end("5" if number else "4", "current", _ENDED[kind])
            self._expect_none(ended)
            self.settle(self._id)
            if number:
                self._become(int(ended[1]), int(ended[2]))

    def preset(self, epoch: int) -> None:
        """Have a producer that has come to an epoch."""
        self._start()
        while self._producer[1] < epoch:
            self._start()

    def _start(self, *who: str) -> None:
        answer = self._init("5", *who)
        self._expect_none(answer)
        self._become(int(answer[1]), int(answer[2]))

    def _become(self, producer_id: int, epoch: int) -> None:
        self._former, self._producer = self._producer, (producer_id, epoch)

    def _expect_none(self, answer: list[str]) -> None:
        assert answer[0] == "NONE", answer

    # --- requests ---

    def _who(self, who: str) -> Producer:
        producer_id, epoch = self._producer
        return {
            "current": (producer_id, epoch),
            "previous": (producer_id, epoch - 1),
            "former": self._former,
            "next": (producer_id, epoch + 1),
            "other": (producer_id + 1_000_000, epoch),
            "half": (producer_id, -1),
            "none": (-1, -1),
        }[who]

    def _init(self, version: str, *words: str) -> list[str]:
        who = [word for word in words if "=" not in word] or ["none"]
        options = dict(word.split("=") for word in words if "=" in word)
        producer_id, epoch = self._who(who[0])
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=int(options.get("timeout", 60_000)),
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return _answer(self.ask(request, int(version)))

    def _topics(self, partitions: tuple[str, ...]) -> list[AddPartitionsToTxnTopic]:
        indexes = [int(partition.removeprefix("t-")) for partition in partitions]
        return [AddPartitionsToTxnTopic(name=self.topic, partitions=indexes)]

    def _add(self, version: str, who: str, *partitions: str) -> list[str]:
        return self._add_or_verify(int(version), who, partitions, verify_only=False)

    def _verify(self, version: str, who: str, *partitions: str) -> list[str]:
        return self._add_or_verify(int(version), who, partitions, verify_only=True)

    def _add_or_verify(
        self, version: int, who: str, partitions: tuple[str, ...], *, verify_only: bool
    ) -> list[str]:
        producer_id, epoch = self._who(who)
        topics = self._topics(partitions)
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            (result,) = self.ask(request, version).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self._id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=topics,
            )
            response = self.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            assert response.error_code is ErrorCode.NONE
            ((result,),) = (each.topic_results for each in response.results_by_transaction)
        codes = {
            each.partition_index: each.partition_error_code for each in result.results_by_partition
        }
        return [",".join(codes[index].name for index in topics[0].partitions)]

    def _offsets(self, version: str, who: str) -> list[str]:
        producer_id, epoch = self._who(who)
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id="group",
        )
        return [self.ask(request, int(version)).error_code.name]

    def _end(self, version: str, who: str, how: str) -> list[str]:
        producer_id, epoch = self._who(who)
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=how == "commit",
        )
        answer = _answer(self.ask(request, int(version)))
        return answer if int(version) >= 5 else answer[:1]


def _answer(response: Any) -> list[str]:
    code: ErrorCode = response.error_code
    if code is not ErrorCode.NONE:
        return [code.name]
    return [code.name, str(response.producer_id), str(response.producer_epoch)]
