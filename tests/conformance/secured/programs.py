"""What clients do to show that they got in: make a topic, write, read in a group, commit.

A `Program` takes an `Access` and does all of it with its unmodified library. It returns the values
that it read; whatever error its library has instead is a `Refused` with the text.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import trio

from kraftrio import Admin, Consumer, NewTopic, Producer
from kraftrio.clients.security import security_settings
from kraftrio.errors import KafkaClientError
from kraftrio.wire.primitives import TopicPartition
from tests.conformance.clients.driven import DrivenClient, Driver
from tests.conformance.clients.install import go_program, kcat, node_script, python_client
from tests.conformance.clients.members import wait_until
from tests.conformance.clients.records import Record
from tests.conformance.clients.scenarios import ClientError
from tests.conformance.java_tools import KafkaTools, ToolRunner
from tests.conformance.secured.access import Access

VALUES = [b"one", b"two", b"three"]
_PATIENCE_S = 20.0


class Refused(Exception):
    """The client did not get in; the text is all that it printed or raised."""


class Program(Protocol):
    """One client."""

    name: str

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        """Make the topic, write `VALUES` into it, read and commit them in the group; return them.

        Raises:
            Refused: the client did not get in.
        """


class Kraftrio:
    """The clients of kraftrio itself."""

    name = "kraftrio"

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        try:
            return trio.run(self._round_trip, access, topic, group)
        except KafkaClientError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    async def _round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        settings = security_settings(access.java())
        async with Admin(access.address, default_api_timeout_ms=5000, **settings) as admin:
            await admin.create_topics([NewTopic(topic, 1)])
            async with Producer(access.address, **settings) as producer:
                for value in VALUES:
                    await producer.send(topic, value=value)
            found: list[bytes] = []
            async with Consumer(
                access.address, group_id=group, auto_offset_reset="earliest", **settings
            ) as consumer:
                await consumer.subscribe(topic)
                with trio.fail_after(_PATIENCE_S):
                    while len(found) < len(VALUES):
                        found += [record.value or b"" for record in await consumer.poll()]
                await consumer.commit()
            committed = (await admin.list_group_offsets(group))[TopicPartition(topic, 0)]
            assert committed is not None and committed.offset == len(VALUES)
        return found


class JavaTools:
    """Apache's command-line tools."""

    name = "java"

    def __init__(self, runner: ToolRunner, folder: Path) -> None:
        self._runner = runner
        self._folder = folder

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        file = self._folder / f"{topic}.properties"
        quick = {"default.api.timeout.ms": "6000", "request.timeout.ms": "5000"}
        quick["max.block.ms"] = "8000"
        file.write_text("".join(f"{n}={v}\n" for n, v in (access.java() | quick).items()))
        tools = KafkaTools(access.address, self._runner)

        def run(tool: str, *arguments: str, data: bytes = b"") -> str:
            option = "--command-config"
            done = tools.run(tool, *arguments, option, str(file), input=data, check=False)
            if done.exit_code or "Exception" in done.stderr:
                raise Refused(done.output)
            return done.stdout

        run("kafka-topics", "--create", "--topic", topic)
        lines = b"".join(value + b"\n" for value in VALUES)
        run("kafka-console-producer", "--topic", topic, data=lines)
        end = ["--max-messages", str(len(VALUES)), "--timeout-ms", "20000"]
        read = ["--topic", topic, "--group", group, "--from-beginning", *end]
        found = run("kafka-console-consumer", *read).encode().splitlines()
        described = run("kafka-consumer-groups", "--describe", "--group", group)
        (row,) = [line.split() for line in described.splitlines() if line.startswith(group)]
        assert row[1:4] == [topic, "0", str(len(VALUES))], described
        return found


class Kcat:
    """kcat; it makes its topic by writing to it."""

    name = "kcat"

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        program = kcat()
        options = [f"-X{name}={value}" for name, value in access.librdkafka().items()]
        options += ["-Xmessage.timeout.ms=8000", "-m8"]

        def run(*arguments: str, data: bytes = b"") -> bytes:
            done = subprocess.run(
                [program.path, *options, *arguments],
                input=data,
                env=os.environ | program.environment,
                capture_output=True,
                timeout=60,
                check=False,
            )
            if done.returncode:
                raise Refused(done.stderr.decode())
            return done.stdout

        run("-P", "-t", topic, data=b"".join(value + b"\n" for value in VALUES))
        listed = run("-L", "-t", topic)
        assert f'topic "{topic}"'.encode() in listed, listed
        reading = ["-Xauto.offset.reset=earliest", "-c", str(len(VALUES)), "-G", group, topic]
        return run(*reading).splitlines()


class Confluent:
    """confluent-kafka."""

    name = "confluent-kafka"

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        said: list[str] = []
        library, admin = python_client("confluent_kafka"), python_client("confluent_kafka.admin")
        common: dict[str, Any] = {
            **access.librdkafka(),
            "error_cb": lambda error: said.append(str(error)),
            "logger": _listener(said),
        }

        def give_up(error: object) -> None:
            raise Refused("\n".join([str(error), *said]))

        new = admin.AdminClient(common)
        made = new.create_topics([admin.NewTopic(topic, 1, 1)], request_timeout=3)[topic]
        try:
            made.result(10)
        except library.KafkaException as error:
            for _ in range(10):
                new.poll(0.1)  # for what its threads have to say
            give_up(error)
        producer = library.Producer(common | {"message.timeout.ms": 8000})
        for value in VALUES:
            producer.produce(topic, value)
        if producer.flush(_PATIENCE_S):
            give_up("not all is sent")
        consumer = library.Consumer(common | {"group.id": group, "auto.offset.reset": "earliest"})
        with closing(consumer):
            consumer.subscribe([topic])
            messages = consumer.consume(len(VALUES), _PATIENCE_S)
            assert all(message.error() is None for message in messages)
            consumer.commit(asynchronous=False)
            (committed,) = consumer.committed([library.TopicPartition(topic, 0)], 10)
            assert committed.offset == len(VALUES)
        return [message.value() for message in messages]


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        library, admin = python_client("kafka"), python_client("kafka.admin")
        settings: dict[str, Any] = _python_settings(access)
        if access.mechanism == "OAUTHBEARER":
            provider = python_client("kafka.net.sasl.oauth").AbstractTokenProvider
            token = access.token
            made = type("Provider", (provider,), {"token": lambda self: token})
            settings["sasl_oauth_token_provider"] = made()
            del settings["sasl_plain_username"], settings["sasl_plain_password"]
        said: list[str] = []
        with _log_kept("kafka", said):
            try:
                return self._go(library, admin, settings, topic, group)
            except Exception as error:
                raise Refused("\n".join([repr(error), *said])) from error

    def _go(
        self, library: Any, admin: Any, settings: dict[str, Any], topic: str, group: str
    ) -> list[bytes]:
        quick = {"bootstrap_timeout_ms": 2000}
        with closing(library.KafkaAdminClient(**settings, **quick)) as client:
            client.create_topics(
                [admin.NewTopic(name=topic, num_partitions=1, replication_factor=1)]
            )
            with closing(library.KafkaProducer(**settings)) as producer:
                for value in VALUES:
                    producer.send(topic, value)
                producer.flush(_PATIENCE_S)
            with closing(
                library.KafkaConsumer(
                    topic, group_id=group, auto_offset_reset="earliest", **settings
                )
            ) as consumer:
                found = [message.value for _, message in zip(VALUES, consumer, strict=False)]
                consumer.commit()
                assert consumer.committed(library.TopicPartition(topic, 0)) == len(VALUES)
        return found


class AioKafka:
    """aiokafka; its admin makes the topic."""

    name = "aiokafka"

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        library, admin = python_client("aiokafka"), python_client("aiokafka.admin")
        settings: dict[str, Any] = _python_settings(access)
        if access.uses_tls:
            names = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
            files = {name.removeprefix("ssl_"): settings.pop(name, None) for name in names}
            settings["ssl_context"] = python_client("aiokafka.helpers").create_ssl_context(**files)
        if access.mechanism == "OAUTHBEARER":
            provider = python_client("aiokafka.abc").AbstractTokenProvider
            token = access.token

            async def give(self: object) -> str:
                return token

            settings["sasl_oauth_token_provider"] = type("Provider", (provider,), {"token": give})()
            del settings["sasl_plain_username"], settings["sasl_plain_password"]
        said: list[str] = []
        with _log_kept("aiokafka", said):
            try:
                return asyncio.run(self._go(library, admin, settings, topic, group))
            except Exception as error:
                raise Refused("\n".join([repr(error), *said])) from error

    async def _go(
        self, library: Any, admin: Any, settings: dict[str, Any], topic: str, group: str
    ) -> list[bytes]:
        client = admin.AIOKafkaAdminClient(**settings)
        await client.start()
        try:
            await client.create_topics([admin.NewTopic(topic, 1, 1)])
        finally:
            await client.close()
        producer = library.AIOKafkaProducer(**settings)
        await producer.start()
        try:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        finally:
            await producer.stop()
        consumer = library.AIOKafkaConsumer(
            topic, group_id=group, auto_offset_reset="earliest", **settings
        )
        await consumer.start()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = [(await consumer.getone()).value for _ in VALUES]
            await consumer.commit()
            committed = await consumer.committed(library.TopicPartition(topic, 0))
            assert committed == len(VALUES)
        finally:
            await consumer.stop()
        return found


class Driven:
    """A client in another language, behind its driver."""

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
    ) -> None:
        self.name = name
        self._command = command

    def round_trip(self, access: Access, topic: str, group: str) -> list[bytes]:
        command = self._command()
        with patch.dict(os.environ, access.environment()):
            driver = Driver(command, access.address)
            client = DrivenClient(driver)
            try:
                client.create_topic(topic, 1)
            except (AssertionError, ClientError) as error:
                raise Refused(f"{error}\n{_last_words(driver)}") from error
            try:
                return self._go(client, topic, group)
            finally:
                driver.close()

    def _go(self, client: DrivenClient, topic: str, group: str) -> list[bytes]:
        records = [Record(b"%d" % number, value) for number, value in enumerate(VALUES)]
        client.produce(topic, "none", records)
        with client.member(topic, group, "reader") as member:
            wait_until(lambda: len(member.received) == len(VALUES), [member], "all are read")
            member.commit()
            return [received.record.value or b"" for received in member.received]


def _last_words(driver: Driver) -> str:
    """End a driver that may have ended by itself; return its complaints."""
    try:
        driver.close()
    except (AssertionError, BrokenPipeError) as error:
        return str(error)
    return ""


def programs(runner: ToolRunner, folder: Path) -> dict[str, Program]:
    """Return all clients by name."""
    all_of_them: list[Program] = [
        Kraftrio(),
        JavaTools(runner, folder),
        Kcat(),
        Confluent(),
        KafkaPython(),
        AioKafka(),
        Driven("kafkajs", lambda: node_script("kafkajs_driver.mjs")),
        Driven("franz-go", lambda: [str(go_program("franz"))]),
        Driven("sarama", lambda: [str(go_program("sarama"))]),
    ]
    return {program.name: program for program in all_of_them}


NAMES = (
    "kraftrio",
    "java",
    "kcat",
    "confluent-kafka",
    "kafka-python",
    "aiokafka",
    "kafkajs",
    "franz-go",
    "sarama",
)


def _python_settings(access: Access) -> dict[str, Any]:
    """Return the settings that kafka-python and aiokafka have in common."""
    settings: dict[str, Any] = {
        "bootstrap_servers": access.address,
        "security_protocol": access.protocol,
    }
    if access.uses_tls:
        settings["ssl_cafile"] = str(access.ca)
        if access.identity is not None:
            settings["ssl_certfile"] = settings["ssl_keyfile"] = str(access.identity)
    if access.uses_sasl:
        settings["sasl_mechanism"] = access.mechanism
        settings["sasl_plain_username"] = access.user
        settings["sasl_plain_password"] = access.password
    return settings


class _Keeper(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


def _listener(said: list[str]) -> logging.Logger:
    """Return a logger that keeps what is logged."""
    logger = logging.Logger(f"listener-{time.monotonic_ns()}")
    logger.addHandler(_Keeper(said))
    return logger


@contextmanager
def _log_kept(name: str, said: list[str]) -> Iterator[None]:
    """Keep what a library logs."""
    keeper = _Keeper(said)
    logger = logging.getLogger(name)
    logger.addHandler(keeper)
    try:
        yield
    finally:
        logger.removeHandler(keeper)
