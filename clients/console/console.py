"""What all pages work with: the cluster's clients, what was seen of it, and the templates.

Owns `Console` and `open_console`. Its admin client lives as long as the console, so that it
finds brokers again that were away. Each reading and writing of records opens clients of its own
(`reading`).

Called by: `server`, and the pages.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio
from jinja2 import Environment

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.config import AdminConfig
from kraftrio.clients.console.history.sampler import Sampler
from kraftrio.clients.console.rendering import make_environment
from kraftrio.clients.console.settings import ConsoleSettings
from kraftrio.clients.errors import InvalidTopicError, UnknownTopicOrPartitionError
from kraftrio.clients.metadata import TopicMetadata

MAX_SEARCHES: Final = 4


class PageError(Exception):
    """A page that cannot be shown, or a change that was not made.

    Args:
        status: of HTTP.
        sentence: what is wrong, and what to do.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Console:
    """See the module.

    Attributes:
        token: what a form must have to change something: other sites cannot read it.
        searches: bounds how many searches run at a time.
    """

    settings: ConsoleSettings
    admin: Admin
    sampler: Sampler
    templates: Environment
    token: str
    searches: trio.Semaphore

    async def topic(self, name: str) -> TopicMetadata:
        """Return a topic.

        Raises:
            PageError: there is no such topic; says which one may be meant.
            KafkaClientError: the cluster does not answer.
        """
        try:
            found = await self.admin.describe_topics([name], raise_errors=False)
            return found[name]
        except (UnknownTopicOrPartitionError, InvalidTopicError):
            hint = did_you_mean(name, await self.admin.list_topics(list_internal=True))
            raise PageError(404, f"there is no topic {name!r}{hint}") from None


@asynccontextmanager
async def open_console(settings: ConsoleSettings) -> AsyncIterator[Console]:
    """Open the clients of a console, and look at the cluster until the body ends.

    Raises:
        ConfigError: a setting of the clients is wrong.
    """
    chosen = settings.client(AdminConfig) | {"default_api_timeout_ms": settings.timeout_ms}
    async with (
        Admin(settings.target.servers, network=settings.network, **chosen) as admin,
        trio.open_nursery() as nursery,
    ):
        sampler = Sampler(admin, settings.now_ms)
        nursery.start_soon(sampler.run)
        token = secrets.token_urlsafe(24)
        yield Console(
            settings, admin, sampler, make_environment(), token, trio.Semaphore(MAX_SEARCHES)
        )
        nursery.cancel_scope.cancel()
