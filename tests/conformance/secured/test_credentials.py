"""kafka-configs for users, kafka-delegation-tokens, and logins with what they made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.java_tools import Completed, KafkaTools, ToolRunner
from tests.conformance.secured.access import Access
from tests.conformance.secured.broker import PASSWORD, USER, SecuredBroker

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKEN_ROW = re.compile(r"^(\S{22})\s+(\S{86}==)\s+(\S+)\s+(\S+)\s+\[(.*?)\]", re.MULTILINE)

Run = Callable[..., Completed]


@pytest.fixture
def run(secured: SecuredBroker, tool_runner: ToolRunner, tmp_path: Path) -> Run:
    """Run a tool as a user."""

    def as_user(access: Access, tool: str, *arguments: str, jaas: str = "") -> Completed:
        properties = access.java() | ({"sasl.jaas.config": jaas} if jaas else {})
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        tools = KafkaTools(access.address, tool_runner)
        return tools.run(tool, "--command-config", str(file), *arguments, check=False)

    return as_user


@pytest.fixture
def admin(secured: SecuredBroker) -> Access:
    return secured.access("SASL_PLAINTEXT", "PLAIN")


def users(run: Run, admin: Access, *arguments: str) -> str:
    return str(run(admin, "kafka-configs", "--entity-type", "users", *arguments).output)


def test_users_are_added_described_and_deleted(run: Run, admin: Access) -> None:
    name = ("--entity-name", "erin")
    configs = ("SCRAM-SHA-256=[iterations=8192,password=first]", "SCRAM-SHA-512=[password=second]")
    said = users(run, admin, "--alter", *name, "--add-config", ",".join(configs))
    assert "A user credential cannot be altered twice in the same request" in said, said
    for config in configs:
        said = users(run, admin, "--alter", *name, "--add-config", config)
        assert "Completed updating config for user erin." in said, said
    said = users(run, admin, "--describe", *name)
    assert "SCRAM-SHA-256=iterations=8192" in said and "SCRAM-SHA-512=iterations=4096" in said
    assert f"'{USER}'" in users(run, admin, "--describe")
    users(run, admin, "--alter", *name, "--delete-config", "SCRAM-SHA-256")
    said = users(run, admin, "--describe", *name)
    assert "SCRAM-SHA-256" not in said and "SCRAM-SHA-512" in said
    users(run, admin, "--alter", *name, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM" not in users(run, admin, "--describe", *name).replace("USER_SCRAM", "")


def test_a_password_counts_as_soon_as_it_is_set(
    run: Run, admin: Access, secured: SecuredBroker
) -> None:
    frank = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-512").but(user="frank", password="one")
    topics = ("kafka-topics", "--list")
    assert "due to invalid credentials" in run(frank, *topics).output
    for password in ("one", "two"):
        config = f"SCRAM-SHA-512=[password={password}]"
        users(run, admin, "--alter", "--entity-name", "frank", "--add-config", config)
        done = run(frank.but(password=password), *topics)
        assert done.exit_code == 0, done.describe()
    assert "due to invalid credentials" in run(frank, *topics).output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--add-config", "SCRAM-SHA-256=[iterations=16385,password=x]"), "Too many iterations"),
        (("--delete-config", "SCRAM-SHA-256"), "does not exist"),
    ],
)
def test_what_is_refused(
    run: Run, admin: Access, arguments: tuple[str, ...], sentence: str
) -> None:
    said = users(run, admin, "--alter", "--entity-name", "nobody", *arguments)
    assert sentence in said, said


def token_rows(done: Completed) -> list[tuple[str, ...]]:
    return TOKEN_ROW.findall(done.stdout)


def test_the_life_of_a_delegation_token(
    run: Run, secured: SecuredBroker, unique_topic: Callable[[], str]
) -> None:
    """Made, used, described, renewed and ended; nobody makes tokens with a token."""
    owner = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256")
    tool = "kafka-delegation-tokens"
    forever = ("--max-life-time-period", "-1")
    made = run(owner, tool, "--create", *forever, "--renewer-principal", "User:gina")
    [(token_id, hmac, who, requester, renewers)] = token_rows(made)
    assert (who, requester, renewers) == (f"User:{USER}", f"User:{USER}", "User:gina")
    described = run(owner, tool, "--describe", "--owner-principal", f"User:{USER}")
    assert token_id in [row[0] for row in token_rows(described)], described.describe()

    by_token = f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
    topic = unique_topic()
    done = run(owner, "kafka-topics", "--create", "--topic", topic, jaas=by_token)
    assert f"Created topic {topic}." in done.stdout, done.describe()
    refused = run(owner, tool, "--create", *forever, jaas=by_token)
    assert "Delegation Token requests are not allowed" in refused.output, refused.describe()

    renewed = run(owner, tool, "--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    assert "Completed renew operation" in renewed.stdout, renewed.describe()
    unknown = run(owner, tool, "--renew", "--renew-time-period", "1", "--hmac", "YWJj")
    assert "Delegation Token is not found" in unknown.output, unknown.describe()
    ended = run(owner, tool, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in ended.stdout, ended.describe()
    refused = run(owner, "kafka-topics", "--list", jaas=by_token)
    assert "due to invalid credentials" in refused.output, refused.describe()


def test_tokens_need_a_login(run: Run, secured: SecuredBroker) -> None:
    plaintext = secured.access("PLAINTEXT")
    done = run(plaintext, "kafka-delegation-tokens", "--create", "--max-life-time-period", "-1")
    assert "Delegation Token requests are not allowed" in done.output, done.describe()


def test_the_password_of_a_user_is_in_no_log(secured: SecuredBroker) -> None:
    assert PASSWORD not in secured.broker.log_text()
