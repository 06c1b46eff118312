"""What access control costs: small requests without an authorizer, and with 10,000 ACLs.

Called by `bench.py --acls`. The requests are those of `bench_requests`, the smallest there are, and
a batch as large as producers make them by default; the measure is the same, the processor time of
the broker per request. A broker with an authorizer and one without are asked by
turns, so that both meet the same moments of the machine.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import Metrics, RunningBroker, running
from bench_requests import TOPIC, ask, cost_us, produce_frame, requests

from kraftrio.wire.messages.security import AclCreation, CreateAclsRequest
from tests.integration.wire_client import WireClient

_ACLS = 10_000
_AT_ONCE = 1_000
_TURNS = 8
_PIPELINED = 20
_COUNT = 40_000
_FULL_BATCH = 150  # records of 100 bytes: batch.size is 16 KB
_AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
_CLUSTER_RIGHTS = (4, "kafka-cluster", 3, 2)
_TOPIC_RIGHTS = ((2, TOPIC, 3, 3), (2, TOPIC, 3, 4), (2, TOPIC, 3, 8))


def measure_acls(kind: str, scale: float, metrics: Metrics) -> None:
    """One round of one broker."""
    with ExitStack() as stack:
        asked: dict[str, tuple[RunningBroker, WireClient]] = {}
        for name, settings in (("no ACLs", ()), (f"{_ACLS:,} ACLs", _AUTHORIZER)):
            broker = stack.enter_context(running(kind, Metrics(), settings))
            host, port = broker.address.split(":")
            client = stack.enter_context(WireClient((host, int(port))))
            client.create_topic(TOPIC, 3)
            if settings:
                _create_acls(client)
            asked[name] = broker, client
        time.sleep(2)
        turns = max(1, int(_COUNT * scale) // _PIPELINED // _TURNS)
        full = f"Produce of {_FULL_BATCH} records", produce_frame(-1, _FULL_BATCH)
        for request, frame in (*requests(), full):
            costs: dict[str, list[float]] = {name: [] for name in asked}
            for _, client in asked.values():
                ask(client, frame * _PIPELINED, _PIPELINED)
            for turn in range(_TURNS):
                order = list(asked.items())
                for name, (broker, client) in order if turn % 2 else reversed(order):
                    cost = cost_us(client, broker, frame * _PIPELINED, _PIPELINED, turns)
                    costs[name].append(cost)
            for name, values in costs.items():
                metrics.add(f"{request}, {name}, broker CPU us", sum(values) / len(values))


def _create_acls(client: WireClient) -> None:
    """Let this client have its rights first of all, and others theirs."""
    own = [_acl("User:ANONYMOUS", *right) for right in (_CLUSTER_RIGHTS, *_TOPIC_RIGHTS)]
    others = [
        _acl(f"User:user-{number % 500}", 2, f"topic-{number}", 3 + number % 2, 3)
        for number in range(_ACLS - len(own))
    ]
    acls = own + others
    for first in range(0, len(acls), _AT_ONCE):
        response = client.call(CreateAclsRequest(creations=acls[first : first + _AT_ONCE]), 3)
        assert not any(result.error_code for result in response.results)


def _acl(principal: str, kind: int, name: str, pattern: int, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )
