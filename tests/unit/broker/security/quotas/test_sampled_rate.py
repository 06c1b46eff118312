"""The measure of client quotas, beside a slow one that does what Kafka's samples do."""

from __future__ import annotations

import random

import pytest

from kraftrio.broker.security.quotas.sampled_rate import RateWindows, SampledRate


class Samples:
    """Kafka's ring of samples, one step after the other."""

    def __init__(self, count: int, size_ms: float) -> None:
        self.count, self.size_ms = count, size_ms
        self.samples: list[list[float]] = []  # began, last event, value
        self.current = 0

    def note(self, amount: float, now_ms: float) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        if now_ms - self.samples[self.current][0] >= self.size_ms:
            self.current = (self.current + 1) % (self.count + 1)
            if self.current >= len(self.samples):
                self.samples.append([now_ms, now_ms, 0.0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0.0]
        sample = self.samples[self.current]
        sample[1] = now_ms
        sample[2] += amount

    def rate(self, now_ms: float) -> tuple[float, float]:
        for sample in self.samples:
            if now_ms - sample[1] >= self.count * self.size_ms:
                sample[:] = [now_ms, now_ms, 0.0]
        elapsed_ms = now_ms - min((sample[0] for sample in self.samples), default=now_ms)
        full = int(elapsed_ms / self.size_ms)
        if full < self.count - 1:
            elapsed_ms += (self.count - 1 - full) * self.size_ms
        elapsed_ms = max(elapsed_ms, 1)
        return sum(sample[2] for sample in self.samples) / elapsed_ms * 1000, elapsed_ms


@pytest.mark.parametrize("seed", range(20))
def test_the_rate_is_that_of_kafkas_samples(seed: int) -> None:
    rng = random.Random(seed)
    count, size_ms = rng.choice([(11, 1000), (2, 1000), (5, 3000), (1, 1000)])
    ours, kafkas = SampledRate(RateWindows(count, size_ms)), Samples(count, size_ms)
    now_ms = 1_000_000
    for _ in range(300):
        now_ms += rng.choice([0, 1, 50, 400, 900, 1000, 1001, rng.randrange(30_000)])
        amount = rng.choice([1, 1000, 1 << 20])
        ours.note(amount, now_ms)
        kafkas.note(amount, now_ms)
        rate, elapsed_ms = kafkas.rate(now_ms)
        assert ours.per_second(now_ms) == pytest.approx(rate)
        assert ours.wait_ms(rate / 2, now_ms) == pytest.approx(elapsed_ms, abs=1)


@pytest.mark.parametrize(
    ("notes", "now_ms", "rate", "wait_ms"),
    [
        # Right at the beginning: by the ten full windows before.
        ([(0, 1000)], 0, 100.0, 0),
        ([(0, 1001)], 0, 100.1, 10),
        ([(0, 2000)], 0, 200.0, 10_000),
        ([(0, 1000), (500, 1000)], 500, 190.47619, 9500),
        # The first second counts as if ten had gone before it, and so on.
        ([(second * 1000, 200) for second in range(5)], 4999, 90.9174, 0),
        # Later, by the time that has passed: eleven seconds at twice the limit, and so many more.
        ([(second * 1000, 200) for second in range(11)], 10_999, 200.01818, 11_001),
        # A window counts until its last note is as old as all of them.
        ([(0, 5000)], 10_999, 454.5868, 39_001),
        ([(0, 5000)], 11_000, 0.0, 0),
    ],
)
def test_known_rates(notes: list[tuple[int, int]], now_ms: int, rate: float, wait_ms: int) -> None:
    measure = SampledRate(RateWindows(11, 1000))
    for at_ms, amount in notes:
        measure.note(amount, at_ms)
    assert measure.per_second(now_ms) == pytest.approx(rate, rel=1e-5)
    assert measure.wait_ms(100, now_ms) == wait_ms


def test_what_is_taken_back_was_never_there() -> None:
    measure = SampledRate(RateWindows(11, 1000))
    measure.note(700, 0)
    measure.note(5000, 300)
    measure.note(-5000, 300)
    assert measure.wait_ms(100, 300) == 0
    assert not measure.is_empty(300)
    assert measure.is_empty(11_300)


def test_a_pause_of_the_time_returned_brings_the_rate_to_the_limit() -> None:
    measure = SampledRate(RateWindows(11, 1000))
    for second in range(11):
        measure.note(110, second * 1000)
    now_ms = 10_500
    wait_ms = measure.wait_ms(100, now_ms)
    assert wait_ms == 1600
    assert measure.wait_ms(100, now_ms + wait_ms) == 0
