"""What concerns single partitions goes to the controller in one request at a time."""

from __future__ import annotations

from collections.abc import Callable

from kraftrio.broker.replica.isr.gathered_requests import GatheredRequests, PartitionKey

A, B, C = ((b"t" * 16, index) for index in range(3))


class Sender:
    """Sends at most two entries at once, when its scheduler says so."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[float, Callable[[], None]]] = []
        self.sent: list[list[PartitionKey]] = []
        self.requests: GatheredRequests[str] = GatheredRequests(self, self._send)

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> Sender:
        self.scheduled.append((delay_ms, callback))
        return self

    def cancel(self) -> None:
        raise AssertionError("nobody cancels")

    def ask(self, *keys: PartitionKey) -> None:
        for key in keys:
            self.requests.waiting[key] = "x"
        self.requests.send_after(5)

    def run(self) -> None:
        scheduled, self.scheduled = self.scheduled, []
        for _, callback in scheduled:
            callback()

    def _send(self) -> None:
        requests = self.requests
        for key in list(requests.waiting)[:2]:
            requests.under_way[key] = requests.waiting.pop(key)
        self.sent.append(list(requests.under_way))


def test_what_comes_before_the_time_is_up_goes_together() -> None:
    sender = Sender()
    sender.ask(A)
    sender.ask(B)
    assert [delay_ms for delay_ms, _ in sender.scheduled] == [5], "one timer is enough"
    assert not sender.sent
    sender.run()
    assert sender.sent == [[A, B]]


def test_nothing_is_sent_while_a_request_is_under_way() -> None:
    sender = Sender()
    sender.ask(A, B, C)
    sender.run()
    sender.ask(A)
    assert not sender.scheduled
    assert sender.requests.take_answered() == {A: "x", B: "x"}
    sender.requests.send_after(0)
    sender.run()
    assert sender.sent == [[A, B], [C, A]]


def test_without_anything_to_send_nothing_is_scheduled() -> None:
    sender = Sender()
    sender.requests.send_after(0)
    assert not sender.scheduled and sender.requests.take_answered() == {}
