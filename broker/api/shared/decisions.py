"""Has the active controller decide on a request, for as long as its client waits.

Behaviour (Kafka's): when a decision takes longer than the request's timeout_ms, every item is
answered REQUEST_TIMED_OUT, though the change may still happen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.ports import SchedulerPort
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.protocol.fitting import fit_version


def decide_in_time(
    submit: Callable[..., Deferred[Any]],
    scheduler: SchedulerPort,
    request: Any,
    *,
    api_version: int,
) -> Deferred[Any]:
    """Ask the active controller; REQUEST_TIMED_OUT when it takes longer than timeout_ms.

    Args:
        submit: a `ControllerPort`'s, or what does the same for a client.
    """
    decision = submit(request, api_version=api_version)
    if decision.done or request.timeout_ms <= 0:  # Kafka does not cut such requests short
        return decision
    answer: Deferred[Any] = Deferred()

    def on_timeout() -> None:
        if not answer.done:
            answer.complete(error_response(request, ErrorCode.REQUEST_TIMED_OUT))

    timer = scheduler.schedule(request.timeout_ms, on_timeout)

    def on_decision(response: Any) -> None:
        if not answer.done:
            timer.cancel()
            answer.complete(response)

    decision.then(on_decision)
    return answer


def in_version(work: Work[Any], version: int) -> Work[Any]:
    """Fit the response that some work results in to an older version."""
    response = yield from work
    if isinstance(response, Deferred):
        return response.map(lambda value: fit_version(value, version))
    return fit_version(response, version)
