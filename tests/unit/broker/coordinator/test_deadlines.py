"""The queue of deadlines: moves, cancels, order, and agreement with a plain model."""

from __future__ import annotations

import random

from kraftrio.broker.coordinator.deadlines import DeadlineQueue


def test_due_in_order_of_time() -> None:
    """Keys come out by deadline, each once."""
    queue = DeadlineQueue()
    queue.schedule(("b",), 20)
    queue.schedule(("a",), 10)
    assert queue.next_deadline_ms() == 10
    assert queue.pop_due(9) is None
    assert [queue.pop_due(25), queue.pop_due(25), queue.pop_due(25)] == [("a",), ("b",), None]


def test_moved_later_is_not_due_early() -> None:
    """A deadline that was moved later fires at the new time only."""
    queue = DeadlineQueue()
    queue.schedule(("a",), 10)
    queue.schedule(("a",), 30)
    assert queue.pop_due(29) is None
    assert queue.pop_due(30) == ("a",)


def test_moved_earlier_and_cancelled() -> None:
    """A deadline may move earlier; a cancelled one never fires."""
    queue = DeadlineQueue()
    queue.schedule(("a",), 30)
    queue.schedule(("a",), 10)
    queue.schedule(("b",), 5)
    queue.cancel(("b",))
    queue.cancel(("never",))
    assert queue.next_deadline_ms() == 10
    assert queue.pop_due(10) == ("a",)
    assert queue.pop_due(100) is None


def test_agrees_with_a_plain_dict() -> None:
    """Random schedules, moves and cancels fire as a dict scanned in full would say."""
    rng = random.Random(7)
    queue = DeadlineQueue()
    model: dict[tuple[str, ...], int] = {}
    for now in range(2_000):
        key = (str(rng.randrange(20)),)
        if rng.random() < 0.7:
            model[key] = now + rng.randrange(50)
            queue.schedule(key, model[key])
        else:
            model.pop(key, None)
            queue.cancel(key)
        due = queue.next_deadline_ms()
        assert (due is None) == (not model)
        assert due is None or due <= min(model.values())
        fired = set()
        while (popped := queue.pop_due(now)) is not None:
            fired.add(popped)
        assert fired == {k for k, deadline in model.items() if deadline <= now}
        for k in fired:
            del model[k]
        assert len(queue) == len(model)
