"""Names of topics and groups that the shell completes: the cluster is asked for them.

Owns `TOPIC` and `GROUP`, the types of such arguments and options. Rules:
1. The cluster is that of the options typed so far, or else of the environment, as for the command.
2. A user waits at a prompt: if no broker answers within a second, or one refuses the client,
   nothing is completed.
3. Kafka's own topics are completed once an underscore was typed.

Called by: the commands.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable

import click
import trio
from click.shell_completion import CompletionItem

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.cli.connect import find_target
from kraftrio.clients.cli.failures import explain, innermost
from kraftrio.clients.cli.output import Output
from kraftrio.clients.cli.session import Session
from kraftrio.clients.config import AdminConfig

_TIMEOUT_S = 1.0


class NameInCluster(click.types.StringParamType):
    """The name of something that a cluster has; any text is one until the cluster is asked.

    Args:
        ask: gets an admin client and how a name begins; returns names.
    """

    def __init__(self, ask: Callable[[Admin, str], Awaitable[Iterable[str]]]) -> None:
        self._ask = ask

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with the text, without those that were typed already."""
        servers, config = ctx.params.get("bootstrap_server"), ctx.params.get("config_file")
        try:
            session = Session(find_target(servers, config, os.environ), Output(as_json=False))
            names = trio.run(self._names, session, incomplete)
        except BaseException as error:
            if explain(innermost(error)) is None:
                raise
            return []
        typed = ctx.params.get(param.name or "")
        given = set(typed) if isinstance(typed, (tuple, list)) else {typed}
        return [
            CompletionItem(name)
            for name in sorted(names)
            if name.startswith(incomplete) and name not in given
        ]

    async def _names(self, session: Session, incomplete: str) -> Iterable[str]:
        settings = session.settings(AdminConfig)
        with trio.move_on_after(_TIMEOUT_S):
            async with Admin(session.target.servers, **settings) as admin:
                return await self._ask(admin, incomplete)
        return ()


async def _topics(admin: Admin, incomplete: str) -> Iterable[str]:
    return await admin.list_topics(list_internal=incomplete.startswith("_"))


async def _groups(admin: Admin, _incomplete: str) -> Iterable[str]:
    return [group.group_id for group in await admin.list_groups()]


TOPIC = NameInCluster(_topics)
GROUP = NameInCluster(_groups)
