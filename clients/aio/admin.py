"""The admin client of asyncio programs: `async with Admin("localhost:9092") as admin`."""

from __future__ import annotations

from kraftrio.clients.admin import admin as _trio
from kraftrio.clients.admin.security.acls import AclAdmin
from kraftrio.clients.admin.security.client_quotas import ClientQuotaAdmin
from kraftrio.clients.admin.security.delegation_tokens import DelegationTokenAdmin
from kraftrio.clients.admin.security.scram_users import ScramUserAdmin
from kraftrio.clients.admin.share_groups import ShareGroupAdmin
from kraftrio.clients.admin.streams_groups import StreamsGroupAdmin
from kraftrio.clients.admin.transactions import TransactionAdmin
from kraftrio.clients.aio.bridge import client_of_asyncio, part_of_client
from kraftrio.clients.aio.host import ClientHost


@client_of_asyncio
class Admin(_trio.Admin):
    """Administers a cluster; to be entered with `async with`. As `kraftrio.Admin`, for asyncio."""

    _host: ClientHost | None = None

    def _on_host(self, host: ClientHost) -> None:
        self.share_groups = part_of_client(ShareGroupAdmin, host, self._begin)
        self.streams_groups = part_of_client(StreamsGroupAdmin, host, self._begin)
        self.transactions = part_of_client(TransactionAdmin, host, self._begin)
        self.acls = part_of_client(AclAdmin, host, self._begin)
        self.scram_users = part_of_client(ScramUserAdmin, host, self._begin)
        self.quotas = part_of_client(ClientQuotaAdmin, host, self._begin)
        self.delegation_tokens = part_of_client(DelegationTokenAdmin, host, self._begin)
