"""The admin client of asyncio programs: `async with Admin("localhost:9092") as admin`."""

from __future__ import annotations

from typing import Any

from kraftrio.clients.admin import admin as _trio
from kraftrio.clients.admin.security.acls import AclAdmin
from kraftrio.clients.admin.security.client_quotas import ClientQuotaAdmin
from kraftrio.clients.admin.security.delegation_tokens import DelegationTokenAdmin
from kraftrio.clients.admin.security.scram_users import ScramUserAdmin
from kraftrio.clients.admin.share_groups import ShareGroupAdmin
from kraftrio.clients.admin.streams_groups import StreamsGroupAdmin
from kraftrio.clients.aio.bridge import client_of_asyncio, runs_in_thread
from kraftrio.clients.aio.host import ClientHost


def _part(base: type, begin: Any, host: ClientHost) -> Any:
    """Return a part of the admin client whose calls run in the clients' thread."""
    made: Any = runs_in_thread(type(base.__name__, (base,), {"_host": host}))
    return made(begin)


@client_of_asyncio
class Admin(_trio.Admin):
    """Administers a cluster; to be entered with `async with`. As `kraftrio.Admin`, for asyncio."""

    _host: ClientHost | None = None

    def _on_host(self, host: ClientHost) -> None:
        self.share_groups = _part(ShareGroupAdmin, self._begin, host)
        self.streams_groups = _part(StreamsGroupAdmin, self._begin, host)
        self.acls = _part(AclAdmin, self._begin, host)
        self.scram_users = _part(ScramUserAdmin, self._begin, host)
        self.quotas = _part(ClientQuotaAdmin, self._begin, host)
        self.delegation_tokens = _part(DelegationTokenAdmin, self._begin, host)
