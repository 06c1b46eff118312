"""The controller's decision, for as long as the client waits."""

from __future__ import annotations

from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import ClusterContext, context, create


def test_slow_controller_is_not_waited_for_longer_than_asked() -> None:
    """At the request's deadline each item times out, and the late decision is dropped."""
    cluster = ClusterContext()
    cluster.hold()
    answer = finish(cluster.admin.forward(create("t", timeout_ms=100), context(7)))
    assert not answer.done
    assert [delay_ms for delay_ms, _ in cluster.timers.calls] == [100]
    cluster.timers.fire()
    assert [(one.name, one.error_code) for one in answer.value.topics] == [("t", 7)]
    cluster.settle()
    assert cluster.metadata.topic("t") is not None


def test_decision_in_time_cancels_the_deadline() -> None:
    """No deadline is left behind by an answered request."""
    cluster = ClusterContext()
    cluster.hold()
    answer = finish(cluster.admin.forward(create("t"), context(7)))
    cluster.settle()
    assert answer.value.topics[0].error_code == 0
    assert cluster.timers.calls == []


def test_request_without_patience_is_still_decided() -> None:
    """A timeout of 0 does not cut a quick decision short, as in Kafka."""
    cluster = ClusterContext()
    cluster.hold()
    answer = finish(cluster.admin.forward(create("t", timeout_ms=0), context(7)))
    assert cluster.timers.calls == []
    cluster.settle()
    assert answer.value.topics[0].error_code == 0
