"""A Produce that names very many partitions, appended in parts.

Behaviour: as of any other, but that a request in which a partition has no batch is refused whole
(INVALID_RECORD), as in Kafka: of the smallest batches few enough fit into a request to be answered
one by one. Called by `produce/produce`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeAlias

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES, nested_parts
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

Answer: TypeAlias = ProduceResponse | Deferred[ProduceResponse] | None


def is_long(request: ProduceRequest) -> bool:
    """Whether a request names more partitions than are appended to at once."""
    topics = request.topic_data
    if len(topics) > PART_ENTRIES:
        return True
    count = 0
    for topic in topics:
        count += len(topic.partition_data)
    return count > PART_ENTRIES


def produce_in_parts(
    produce: Callable[[ProduceRequest], Answer | Work[Answer]],
    is_forbidden: Callable[[PartitionProduceData], bool],
    refuse: Callable[[PartitionProduceData, ErrorCode], PartitionProduceResponse],
    request: ProduceRequest,
) -> Work[Answer]:
    """Append part after part; answer when all are answered.

    Raises:
        RemoteProtocolError: of an append with acks=0, once all parts were tried.
    """
    refusal = ErrorCode.NONE
    for topic in request.topic_data:
        for data in topic.partition_data:
            if not data.records:
                refusal = ErrorCode.INVALID_RECORD
            elif is_forbidden(data):
                refusal = refusal or ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            yield None
        yield None
    if refusal is not ErrorCode.NONE:
        return _refuse_all(refuse, request, refusal)
    answers: list[ProduceResponse | Deferred[ProduceResponse]] = []
    failure: RemoteProtocolError | None = None
    for part in _parts(request):
        try:
            made = produce(part)
            # Work: the gate has not decided yet.
            answer = (yield from made) if isinstance(made, Generator) else made
        except RemoteProtocolError as error:
            failure = error
        else:
            if answer is not None:
                answers.append(answer)
        yield None
    if failure is not None:
        raise failure
    response: ProduceResponse | None = None
    for answer in answers:
        if isinstance(answer, Deferred):
            yield answer
            answer = answer.value
        response = answer if response is None else _joined(response, answer)
    return response


def _refuse_all(
    refuse: Callable[[PartitionProduceData, ErrorCode], PartitionProduceResponse],
    request: ProduceRequest,
    code: ErrorCode,
) -> ProduceResponse:
    if request.acks == 0:
        raise RemoteProtocolError(f"a Produce with acks=0 is refused with {code.name}")
    return ProduceResponse(
        responses=each(
            lambda topic: TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=each(partial(_refusal, refuse, code), topic.partition_data),
            ),
            request.topic_data,
        )
    )


def _refusal(
    refuse: Callable[[PartitionProduceData, ErrorCode], PartitionProduceResponse],
    code: ErrorCode,
    data: PartitionProduceData,
) -> PartitionProduceResponse:
    return refuse(data, code)


def _parts(request: ProduceRequest) -> Iterator[ProduceRequest]:
    def entries_of(topic: TopicProduceData) -> list[PartitionProduceData]:
        return topic.partition_data

    for part in nested_parts(request.topic_data, entries_of):
        asked = copy.copy(request)
        asked.topic_data = [
            TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=entries)
            for topic, entries in part
        ]
        yield asked


def _joined(response: ProduceResponse, more: ProduceResponse) -> ProduceResponse:
    last, first = response.responses[-1], more.responses[0]
    if (last.name, last.topic_id) == (first.name, first.topic_id):
        last.partition_responses += first.partition_responses
        response.responses += more.responses[1:]
    else:
        response.responses += more.responses
    known = {endpoint.node_id for endpoint in response.node_endpoints}
    response.node_endpoints += [one for one in more.node_endpoints if one.node_id not in known]
    return response
