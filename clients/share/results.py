"""The results of acknowledgements, for calls that wait for them and for the program's callback.

Called by: `fetcher`, which reports them; `share/consumer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kraftrio.clients.errors import KafkaClientError
from kraftrio.clients.share.acknowledgements import GAP, Acknowledgements, TopicIdPartition
from kraftrio.wire.primitives import TopicPartition

logger = logging.getLogger(__name__)

Outcome = dict[TopicPartition, KafkaClientError | None]
AcknowledgementCallback = Callable[[TopicPartition, Sequence[int], KafkaClientError | None], None]


class AcknowledgementResults:
    """See the module.

    Args:
        fail: called with what the callback raises.

    Attributes:
        callback: called with a partition, offsets that were acknowledged, and why that failed.
        in_flight: how many requests with acknowledgements are not answered yet.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self.callback: AcknowledgementCallback | None = None
        self.in_flight = 0
        self._fail = fail
        self._collectors: list[Outcome] = []

    @contextmanager
    def collected(self) -> Iterator[Outcome]:
        """Collect the results by partition while the body runs; an error is never overwritten."""
        outcome: Outcome = {}
        self._collectors.append(outcome)
        try:
            yield outcome
        finally:
            # By identity: two that hold the same are equal.
            self._collectors = [each for each in self._collectors if each is not outcome]

    def sent(self, acknowledgements: Acknowledgements) -> None:
        """Acknowledgements were sent."""
        self.in_flight += bool(acknowledgements)

    def ended(self, acknowledgements: Acknowledgements) -> None:
        """Their request has ended, whatever the result."""
        self.in_flight -= bool(acknowledgements)

    def failed(self, acknowledgements: Acknowledgements, error: KafkaClientError) -> None:
        """All of them failed."""
        self.answered(acknowledgements, dict.fromkeys(acknowledgements, error))

    def answered(
        self,
        acknowledgements: Acknowledgements,
        errors: Mapping[TopicIdPartition, KafkaClientError | None],
    ) -> None:
        """They were answered; partitions without an error have succeeded."""
        for partition, kinds in acknowledgements.items():
            offsets = sorted(offset for offset, kind in kinds.items() if kind != GAP)
            error = errors.get(partition)
            if not offsets:
                continue
            where = partition.topic_partition
            for outcome in self._collectors:
                outcome[where] = error or outcome.get(where)
            if self.callback is not None:
                self._call(where, offsets, error)
            elif error is not None and not self._collectors:
                logger.warning(
                    "%s-%s: %s records were not acknowledged: %s", *where, len(offsets), error
                )

    def _call(
        self, where: TopicPartition, offsets: Sequence[int], error: KafkaClientError | None
    ) -> None:
        assert self.callback is not None
        try:
            self.callback(where, offsets, error)
        except Exception as raised:  # the application's own, which its next call raises
            self._fail(raised)
