"""What metrics cost: requests to a broker that is scraped, and to one without a metrics listener.

Called by `bench.py --metrics`, for this broker alone. Measured is the processor time of the broker
per request, as in `bench_requests`, and of batches per record. The two are asked by turns, so that
both meet the same moments of the machine. Scrapes come between turns and are measured apart; what
they cost is added as if one came every five seconds, to a broker that is busy all the time.
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
    metrics_url: str | None

    def scrape_s(self) -> float:
        """Processor time of a scrape; 0: nobody scrapes."""
        if self.metrics_url is None:
            return 0.0
        began_s = self.broker.cpu_s()
        for _ in range(_SCRAPES):
            with urllib.request.urlopen(self.metrics_url, timeout=30) as page:
                assert page.read()
        return (self.broker.cpu_s() - began_s) / _SCRAPES


def measure_metrics(kind: str, scale: float, metrics: Metrics) -> None:
    """One round."""
    if kind != "kraftrio":
        return
    with ExitStack() as stack:
        address = f"127.0.0.1:{free_ports(1)}"
        asked = {
            "without": _start(stack, kind, None),
            "with metrics": _start(stack, kind, address),
        }
        time.sleep(2)
        for name, frame, count, records in _loads():
            costs: dict[str, list[float]] = {which: [] for which in asked}
            scrapes: list[float] = []
            for one in asked.values():
                ask(one.client, frame * _PIPELINED, _PIPELINED)
            for turn in range(_TURNS):
                order = list(asked.items())
                for which, one in order if turn % 2 else reversed(order):
                    turns = max(1, int(count * scale) // _PIPELINED)
                    cost = cost_us(one.client, one.broker, frame * _PIPELINED, _PIPELINED, turns)
                    scrape_s = one.scrape_s()
                    scrapes.append(scrape_s)
                    costs[which].append(cost / records * (1 + scrape_s / _SCRAPE_EVERY_S))
            medians = {which: median(values) for which, values in costs.items()}
            for which, cost in medians.items():
                metrics.add(f"{name}, {which}, broker CPU us", cost)
            metrics.add(f"{name}, with / without", medians["with metrics"] / medians["without"])
            metrics.add("a scrape, broker CPU ms", sum(scrapes) / _TURNS * 1000)


def _start(stack: ExitStack, kind: str, address: str | None) -> _Asked:
    settings = () if address is None else (f"metrics.listener={address}",)
    broker = stack.enter_context(running(kind, Metrics(), settings))
    host, port = broker.address.split(":")
    client = stack.enter_context(WireClient((host, int(port))))
    client.create_topic(TOPIC, 3)
    for number in range(_OTHER_TOPICS):
        client.create_topic(f"other-{number}", 3)
    return _Asked(broker, client, None if address is None else f"http://{address}/metrics")


def _loads() -> Iterator[tuple[str, bytes, int, int]]:
    """What is sent, how often in a turn, and how many records each has."""
    batch = produce_frame(acks=1, record_count=_RECORDS)
    yield f"records in batches of {_RECORDS}", batch, _BATCHES_PER_TURN, _RECORDS
    for name, frame in requests():
        if name.startswith(("Produce acks=1", "Fetch a batch")):
            yield name, frame, _REQUESTS_PER_TURN, 1
