"""What one side presents and trusts, as it is now: renewed while connections come and go.

Owns: `TlsContexts` (one state of it) and `TlsIdentity`, which goes from one to the next. Rules
1. A state is made whole, by `prepare`, before it replaces the one before; one that cannot be made
   changes nothing.
2. Connections that there are keep the state that they were made with.
3. A node that dials its own kind must trust its own certificate (as Kafka checks of the listener
   between brokers): found out at the start, and not by the first broker that is refused.

`prepare` reads files and computes: after the start it belongs in a worker thread.

Called by: the wiring of brokers and of clients.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from kraftrio.net.tls.contexts import TlsMaterial
from kraftrio.net.tls.settings import TlsSettings, TlsSettingsError
from kraftrio.net.tls.socket import describe

FileStamp = tuple[int, int, int]
_ABSENT: FileStamp = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """One state: the settings, what their files held, and the contexts of both sides.

    Attributes:
        server: None: this side accepts no connections.
        stamps: of the files, from before they were read.
    """

    material: TlsMaterial
    client: ssl.SSLContext
    server: ssl.SSLContext | None
    stamps: tuple[FileStamp, ...]

    @property
    def settings(self) -> TlsSettings:
        return self.material.settings

    @classmethod
    def prepare(
        cls, settings: TlsSettings, *, is_server: bool, trusts_itself: bool = False
    ) -> TlsContexts:
        """Read the files and make the contexts, in the calling thread.

        Args:
            trusts_itself: others of its kind present certificates like its own.

        Raises:
            TlsSettingsError: they cannot be made.
        """
        stamps = file_stamps(settings)
        material = TlsMaterial.load(settings)
        server = material.server_context() if is_server else None
        if server is not None and trusts_itself:
            _check_trust(server, material.client_context())
        return cls(material, material.client_context(), server, stamps)


class TlsIdentity:
    """See the module.

    Attributes:
        current: the state in force.
    """

    def __init__(self, contexts: TlsContexts) -> None:
        self.current = contexts

    def client_context(self) -> ssl.SSLContext:
        """The context of connections that this side opens."""
        return self.current.client

    def server_context(self) -> ssl.SSLContext:
        """The context of connections that this side accepts."""
        context = self.current.server
        assert context is not None, "this side accepts no connections"
        return context


def file_stamps(settings: TlsSettings) -> tuple[FileStamp, ...]:
    """What distinguishes a file from a later one of its name: for each that the settings name."""
    stores = (settings.keystore, settings.truststore)
    return tuple(
        _stamp(store.location)
        for store in stores
        if store is not None and store.location is not None
    )


def _stamp(location: str) -> FileStamp:
    try:
        found = os.stat(location)
    except OSError:
        return _ABSENT
    return found.st_mtime_ns, found.st_size, found.st_ino


def _check_trust(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Shake hands with oneself, in memory."""
    client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    undecided = set(sides)
    while undecided:
        for side in sides:
            try:
                side.do_handshake()
                undecided.discard(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                raise TlsSettingsError(
                    "the certificate of ssl.keystore is not trusted by ssl.truststore, as"
                    f" nodes of one cluster have to: {describe(error)}"
                ) from error
