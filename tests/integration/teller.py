"""A program that carries out orders as transfers, a batch of them in each transaction.

    python -m tests.integration.teller BOOTSTRAP NAME SEED

It reads `orders`, writes one record to `debits` and one to `credits` for each, and commits its
position with them: confluent-kafka with NAME as transactional id. It aborts its first transaction
and some others, after it has written amounts that nobody must ever read; then it carries out the
same orders again. Anything else that goes wrong ends it: with FENCED when another one has taken its
place, else with FAILED.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
from typing import Any

from tests.conformance.clients.install import python_client

ORDERS, DEBITS, CREDITS = "orders", "debits", "credits"
PARTITIONS = 3
ACCOUNTS = 7
GROUP = "tellers"
FAILED, FENCED = 3, 4
WRONG = 1_000_000
TIMEOUT_S = 30.0
ABORTED = 0.15  # the share of transactions

log = logging.getLogger("teller")
log.setLevel(logging.CRITICAL)


def transfer(order: int) -> tuple[int, int, int]:
    """Return the accounts of an order, and the amount."""
    return order % ACCOUNTS, (order * 3 + 1) % ACCOUNTS, 1 + order % 97


class Teller:
    """One producer and one consumer."""

    def __init__(self, address: str, name: str, rng: random.Random) -> None:
        self._rng = rng
        self._library = python_client("confluent_kafka")
        common = {
            "bootstrap.servers": address,
            "socket.timeout.ms": 4000,
            "reconnect.backoff.max.ms": 500,
            "logger": log,
        }
        settings: dict[str, Any] = {
            "transactional.id": name,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 2,
        }
        self._producer: Any = self._library.Producer(common | settings)
        settings = {
            "group.id": GROUP,
            "group.instance.id": name,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
        self._consumer: Any = self._library.Consumer(common | settings)

    def run(self) -> None:
        """Carry out orders until something goes wrong."""
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([ORDERS])
        is_first = True
        while True:
            found = self._consumer.consume(20, 0.1)
            for message in found:
                if message.error() is not None:
                    raise self._library.KafkaException(message.error())
            orders = [int(message.value().split(b" ")[0].removeprefix(b"c.")) for message in found]
            if not orders:
                continue
            while is_first or self._rng.random() < ABORTED:
                self._transaction(orders, commit=False)
                is_first = False
            self._transaction(orders, commit=True)

    def _transaction(self, orders: list[int], *, commit: bool) -> None:
        self._producer.begin_transaction()
        for order in orders:
            payer, payee, amount = transfer(order)
            wrong = 0 if commit else WRONG
            self._write(DEBITS, payer, order, -amount - wrong)
            self._write(CREDITS, payee, order, amount + wrong)
        positions = self._consumer.position(self._consumer.assignment())
        self._producer.send_offsets_to_transaction(
            [one for one in positions if one.offset >= 0],
            self._consumer.consumer_group_metadata(),
            TIMEOUT_S,
        )
        if commit:
            self._end(self._producer.commit_transaction)
        else:
            self._producer.flush(TIMEOUT_S)
            self._end(self._producer.abort_transaction)

    def _end(self, end: Any) -> None:
        """Repeat a call as long as its error may be retried: the library goes on where it was."""
        while True:
            try:
                end(TIMEOUT_S)
                return
            except self._library.KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _write(self, topic: str, account: int, order: int, amount: int) -> None:
        self._producer.produce(
            topic,
            key=str(account),
            value=json.dumps([order, amount]),
            partition=account % PARTITIONS,
        )
        self._producer.poll(0)

    def fate(self, error: Any) -> int:
        """Return the exit code for an error."""
        codes = self._library.KafkaError
        fenced = {codes._FENCED, codes.PRODUCER_FENCED, codes.FENCED_INSTANCE_ID, codes._FATAL}
        return FENCED if error.code() in fenced or error.fatal() else FAILED


def main() -> int:
    """Work until something goes wrong."""
    address, name, seed = sys.argv[1:]
    teller = Teller(address, name, random.Random(seed))
    try:
        teller.run()
    except python_client("confluent_kafka").KafkaException as failure:
        error = failure.args[0]
    except SystemError as raised:
        # The library makes this of a fatal error that it learns of while it flushes.
        if raised.__cause__ is None:
            raise
        error = raised.__cause__.args[0]
    print(f"{name}: {error!r}", flush=True)
    return teller.fate(error)


if __name__ == "__main__":
    # at once: nothing that is still to be sent or committed matters now
    code = main()
    sys.stdout.flush()
    os._exit(code)
