"""What ACLs forbid has the error of its kind, and works once it is allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import trio

from kraftrio import Admin, Consumer, NewTopic, Producer, QuotaEntity, QuotaFilter
from kraftrio.clients.admin.security.acls import Acl, AclFilter, AclOperation, ResourceType
from kraftrio.clients.security import security_settings
from kraftrio.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    DelegationTokenNotFoundError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from tests.conformance.clients import scenarios
from tests.conformance.secured.broker import USER, SecuredBroker

pytestmark = scenarios.MARKS

DEADLINE_S = 30.0
PRINCIPAL = f"User:{USER}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker on which users may do what ACLs allow."""
    with SecuredBroker(tmp_path_factory.mktemp("guarded"), authorizer=True) as broker:
        yield broker


class Guarded:
    """The administrator, who comes in plaintext, and how the user comes in."""

    def __init__(self, broker: SecuredBroker, admin: Admin) -> None:
        access = broker.access("SASL_SSL", "PLAIN")
        self.servers = access.address
        self.settings: Any = security_settings(access.java())
        self.admin = admin

    async def allow(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Allow the user something."""
        await self.admin.acls.create([Acl(kind, name, PRINCIPAL, each) for each in operations])


def run(broker: SecuredBroker, story: Callable[[Guarded], Awaitable[None]]) -> None:
    """Run a story with a topic `t` and no ACLs."""

    async def main() -> None:
        async with Admin(broker.broker.address) as admin:
            await admin.acls.delete([AclFilter(principal=PRINCIPAL)])
            await admin.create_topics([NewTopic("t", 1)], raise_errors=False)
            with trio.fail_after(DEADLINE_S):
                await story(Guarded(broker, admin))

    trio.run(main)


async def once_allowed(call: Callable[[], Awaitable[Any]], error: type[AuthorizationError]) -> Any:
    """Call until the broker knows an ACL."""
    while True:
        try:
            return await call()
        except error:
            await trio.sleep(0.05)


async def eventually(call: Callable[[], Awaitable[Any]]) -> Any:
    """Call until there is a result: brokers learn of changes a little later."""
    while True:
        if found := await call():
            return found
        await trio.sleep(0.05)


def test_writing(guarded: SecuredBroker) -> None:
    """The same producer goes on once it may."""

    async def story(given: Guarded) -> None:
        async with Producer(given.servers, **given.settings) as producer:

            async def send() -> Any:
                return await (await producer.send("t", b"x"))

            with pytest.raises(TopicAuthorizationError):
                await send()
            await given.allow(ResourceType.TOPIC, "t", AclOperation.WRITE)
            await once_allowed(send, TopicAuthorizationError)

    run(guarded, story)


def test_writing_where_looking_is_allowed(guarded: SecuredBroker) -> None:
    """The refusal comes with the answer to the records, or to the question for a producer id."""

    async def story(given: Guarded) -> None:
        await given.allow(ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
        for idempotent, expected in (
            (False, TopicAuthorizationError),
            (True, ClusterAuthorizationError),
        ):
            async with Producer(
                given.servers, enable_idempotence=idempotent, **given.settings
            ) as producer:
                delivery = await once_allowed(
                    partial(producer.send, "t", b"x"), TopicAuthorizationError
                )
                with pytest.raises(expected):
                    await delivery

    run(guarded, story)


def test_reading(guarded: SecuredBroker) -> None:
    """First the group is forbidden, then the topic."""

    async def story(given: Guarded) -> None:
        async with Producer(guarded.broker.address) as producer:
            await (await producer.send("t", b"x"))
        await given.allow(ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
        reading: Any = {"auto_offset_reset": "earliest", **given.settings}
        async with Consumer(given.servers, group_id="g", **reading) as consumer:
            await consumer.subscribe("t")
            with pytest.raises((GroupAuthorizationError, TopicAuthorizationError)):
                await consumer.poll()
        await given.allow(ResourceType.GROUP, "g", AclOperation.READ)
        await given.allow(ResourceType.TOPIC, "t", AclOperation.READ)

        async def read() -> None:
            async with Consumer(given.servers, group_id="g", **reading) as consumer:
                await consumer.subscribe("t")
                assert await consumer.poll()
                await consumer.commit()

        await once_allowed(read, AuthorizationError)

    run(guarded, story)


def test_reading_what_must_not_even_be_seen(guarded: SecuredBroker) -> None:
    """The same consumer goes on once it may."""

    async def story(given: Guarded) -> None:
        async with Producer(guarded.broker.address) as producer:
            await (await producer.send("t", b"x"))
        await given.allow(ResourceType.GROUP, "g", AclOperation.READ)
        reading: Any = {"auto_offset_reset": "earliest", **given.settings}
        async with Consumer(given.servers, group_id="g", **reading) as consumer:
            await consumer.subscribe("t")
            with pytest.raises(TopicAuthorizationError):
                await once_allowed(consumer.poll, GroupAuthorizationError)
            await given.allow(ResourceType.TOPIC, "t", AclOperation.READ)
            assert await once_allowed(consumer.poll, TopicAuthorizationError)

    run(guarded, story)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_may_be_joined_later(guarded: SecuredBroker, protocol: str) -> None:
    """Each poll asks again: the same consumer goes on once it may."""

    async def story(given: Guarded) -> None:
        async with Producer(guarded.broker.address) as producer:
            await producer.send_and_wait("t", b"x")
        await given.allow(ResourceType.TOPIC, "t", AclOperation.READ)
        group = f"later-{protocol}"
        reading: Any = {"auto_offset_reset": "earliest", "group_protocol": protocol}
        async with Consumer(given.servers, group_id=group, **reading, **given.settings) as consumer:
            await consumer.subscribe("t")
            for _ in range(3):
                with pytest.raises(GroupAuthorizationError):
                    await once_allowed(consumer.poll, TopicAuthorizationError)
            await given.allow(ResourceType.GROUP, group, AclOperation.READ)
            assert await once_allowed(consumer.poll, GroupAuthorizationError)
            await consumer.commit()

    run(guarded, story)


def test_delegation_tokens(guarded: SecuredBroker) -> None:
    """A user makes one, which others do not see, prolongs it and ends it."""

    async def story(given: Guarded) -> None:
        async with Admin(given.servers, **given.settings) as admin:
            token = await admin.delegation_tokens.create(
                renewers="User:bob", max_lifetime_ms=timedelta(hours=2)
            )
            assert (token.owner, token.renewers) == (PRINCIPAL, ("User:bob",))
            assert token.max_timestamp_ms - token.issue_timestamp_ms == 7_200_000
            (described,) = await eventually(admin.delegation_tokens.describe)
            assert described == token
            until_ms = await admin.delegation_tokens.renew(
                token.hmac, period_ms=timedelta(minutes=30)
            )
            assert until_ms < token.expiry_timestamp_ms
            await admin.delegation_tokens.expire(token.hmac)
            with pytest.raises(DelegationTokenNotFoundError):
                while True:
                    await admin.delegation_tokens.renew(token.hmac)

    run(guarded, story)


def test_quotas(guarded: SecuredBroker) -> None:
    """They are set, described and removed; a user who may not change them is refused."""

    async def story(given: Guarded) -> None:
        entity = QuotaEntity(user="carol")
        wanted = {"producer_byte_rate": 1_000_000.0, "request_percentage": 50.0}
        quotas = given.admin.quotas
        await quotas.alter({entity: wanted})
        assert (await eventually(partial(quotas.describe, QuotaFilter(user="carol"))))[
            entity
        ] == wanted
        await quotas.alter({entity: dict.fromkeys(wanted)})
        async with Admin(given.servers, **given.settings) as admin:
            with pytest.raises(ClusterAuthorizationError):
                await admin.quotas.alter({entity: wanted})

    run(guarded, story)


def test_administering(guarded: SecuredBroker) -> None:
    async def story(given: Guarded) -> None:
        async with Admin(given.servers, **given.settings) as admin:
            with pytest.raises(TopicAuthorizationError):
                await admin.create_topics([NewTopic("mine", 1)])
            with pytest.raises(ClusterAuthorizationError):
                await admin.acls.describe()
            with pytest.raises(ClusterAuthorizationError):
                await admin.scram_users.describe(["bob"])  # of all users Apache says nothing
            with pytest.raises(GroupAuthorizationError):
                await admin.describe_groups(["g"])
            assert "t" not in await admin.list_topics()

    run(guarded, story)


def test_transactions(guarded: SecuredBroker) -> None:
    async def story(given: Guarded) -> None:
        with pytest.raises(TransactionalIdAuthorizationError):
            async with Producer(given.servers, transactional_id="x", **given.settings):
                raise AssertionError("it got in")

    run(guarded, story)
