"""What metrics and console cost: requests to brokers that are looked at, and to one that is not.

Called by `bench.py --metrics`, for this broker alone. Measured is the processor time of the broker
per request, as in `bench_requests`, and of batches per record. They are asked by turns, so that all
meet the same moments of the machine. Scrapes, and pages of the console, come between turns and are
measured apart; what they cost is added as if one came every five seconds, to a broker that is busy
all the time. What the console itself asks the broker every two seconds falls into the turns.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, RunningBroker, free_ports, running
from bench_requests import TOPIC, ask, cost_us, produce_frame, requests

from tests.integration.wire_client import WireClient

_TURNS = 20
_SCRAPES = 5
_PIPELINED = 20
_REQUESTS_PER_TURN = 4_000
_BATCHES_PER_TURN = 1_000
_RECORDS = 500
_OTHER_TOPICS = 100  # whose series are on the page, too
_SCRAPE_EVERY_S = 5.0  # Prometheus comes every 15 s or less often


@dataclass
class _Asked:
    broker: RunningBroker
    client: WireClient
    urls: tuple[str, ...]

    def scrape_s(self) -> float:
        """Processor time of a scrape, and of a page of the console; 0: none is open."""
        if not self.urls:
            return 0.0
        began_s = self.broker.cpu_s()
        for url in self.urls * _SCRAPES:
            with urllib.request.urlopen(url, timeout=30) as page:
                assert page.read()
        return (self.broker.cpu_s() - began_s) / _SCRAPES


def measure_metrics(kind: str, scale: float, metrics: Metrics) -> None:
    """One round."""
    if kind != "kraftrio":
        return
    with ExitStack() as stack:
        port = free_ports(3)
        first, second, third = (f"127.0.0.1:{port + number}" for number in range(3))
        asked = {
            "without": _start(stack, kind),
            "with metrics": _start(stack, kind, first),
            "with metrics and console": _start(stack, kind, second, third),
        }
        time.sleep(2)
        for name, frame, count, records in _loads():
            costs: dict[str, list[float]] = {which: [] for which in asked}
            scrapes: dict[str, list[float]] = {which: [] for which in list(asked)[1:]}
            for one in asked.values():
                ask(one.client, frame * _PIPELINED, _PIPELINED)
            for turn in range(_TURNS):
                order = list(asked.items())
                for which, one in order if turn % 2 else reversed(order):
                    turns = max(1, int(count * scale) // _PIPELINED)
                    cost = cost_us(one.client, one.broker, frame * _PIPELINED, _PIPELINED, turns)
                    scrape_s = one.scrape_s()
                    if which in scrapes:
                        scrapes[which].append(scrape_s)
                    costs[which].append(cost / records * (1 + scrape_s / _SCRAPE_EVERY_S))
            medians = {which: median(values) for which, values in costs.items()}
            for which, cost in medians.items():
                metrics.add(f"{name}, {which}, broker CPU us", cost)
            for which in list(medians)[1:]:
                metrics.add(f"{name}, {which} / without", medians[which] / medians["without"])
            for which, values in scrapes.items():
                metrics.add(f"a look {which}, broker CPU ms", sum(values) / _TURNS * 1000)


def _start(stack: ExitStack, kind: str, metrics: str = "", console: str = "") -> _Asked:
    settings = [f"metrics.listener={metrics}", f"console.listener={console}"]
    broker = stack.enter_context(running(kind, Metrics(), settings))
    host, port = broker.address.split(":")
    client = stack.enter_context(WireClient((host, int(port))))
    client.create_topic(TOPIC, 3)
    for number in range(_OTHER_TOPICS):
        client.create_topic(f"other-{number}", 3)
    urls = [f"http://{metrics}/metrics"] if metrics else []
    urls += [f"http://{console}/"] if console else []
    return _Asked(broker, client, tuple(urls))


def _loads() -> Iterator[tuple[str, bytes, int, int]]:
    """What is sent, how often in a turn, and how many records each has."""
    batch = produce_frame(acks=1, record_count=_RECORDS)
    yield f"records in batches of {_RECORDS}", batch, _BATCHES_PER_TURN, _RECORDS
    for name, frame in requests():
        if name.startswith(("Produce acks=1", "Fetch a batch")):
            yield name, frame, _REQUESTS_PER_TURN, 1
