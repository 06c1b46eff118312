"""Which limit of a client quota applies to whom: `ClientLimits` for users and client ids,
`AddressLimits` for addresses.

The order is Kafka's, the first that is set applies:
1. this user with this client id; 2. this user, any client id; 3. this user;
4. any user with this client id; 5. any user, any client id; 6. any user;
7. this client id; 8. any client id.
"Any" is the default entity. Who shares a limit follows from where it was found: of 1, 2, 4 and 5
each pair of user and client id has it for itself, of 3 and 6 each user, of 7 and 8 each client id.
A client that names no client id has only what users have (3 and 6).
An address has its own limit, or that of any address; each address has it for itself.

Pure. Called by: the quotas of the broker and of the controller.
Kafka's counterpart: ClientQuotaManager's DefaultQuotaCallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple, Protocol

from kraftrio.kraft_meta.metadata.quota_image import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    DEFAULT_NAME,
    IP,
    USER,
    QuotaEntity,
)

_MOST_FOUND = 10_000  # kept at a time

_Key = tuple[str | None, str | None]  # user, client id; None: not of the entity


class Limit(NamedTuple):
    """A limit, and who shares it.

    Attributes:
        user: "" when all users of the client id share it.
        client_id: "" when all client ids of the user share it.
    """

    user: str
    client_id: str
    value: float


class Limits(Protocol):
    """What a quota allows whom."""

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None], /) -> None:
        """Take over all values of some entities as they are now; None: they have none."""

    def find(self, user: str, client_id: str, /) -> Limit | None:
        """Return what applies; None: nothing does."""


class ClientLimits:
    """The limits of one quota for users and client ids.

    Args:
        key: the quota's (`quota_image`).
    """

    __slots__ = ("_found", "_key", "_limits")

    def __init__(self, key: str) -> None:
        self._key = key
        self._limits: dict[_Key, float] = {}
        self._found: dict[tuple[str, str], Limit | None] = {}  # what was looked for before

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take over all values of some entities as they are now; None: they have none."""
        self._found.clear()
        for entity, values in quotas.items():
            names = dict(entity)
            if IP in names:
                continue
            found = (names.get(USER), names.get(CLIENT_ID))
            value = values.get(self._key) if values is not None else None
            if value is not None:
                self._limits[found] = value
            else:
                self._limits.pop(found, None)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> Limit | None:
        """Return what applies to requests of a user with a client id; None: nothing does."""
        sender = (user, client_id)
        try:
            return self._found[sender]
        except KeyError:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            found = self._found[sender] = self._find(user, client_id)
            return found

    def _find(self, user: str, client_id: str) -> Limit | None:
        limits = self._limits
        for own in (user, DEFAULT_NAME):
            if client_id:
                for name in (client_id, DEFAULT_NAME):
                    value = limits.get((own, name))
                    if value is not None:
                        return Limit(user, client_id, value)
            value = limits.get((own, None))
            if value is not None:
                return Limit(user, "", value)
        if client_id:
            for name in (client_id, DEFAULT_NAME):
                value = limits.get((None, name))
                if value is not None:
                    return Limit("", client_id, value)
        return None


class AddressLimits:
    """How many connections a second addresses may make; an address stands for a client id."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[str, float] = {}

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take over all values of some entities as they are now; None: they have none."""
        for entity, values in quotas.items():
            names = dict(entity)
            if IP not in names:
                continue
            address = _shortest(names[IP])
            value = values.get(CONNECTION_CREATION_RATE) if values is not None else None
            if value is not None:
                self._limits[address] = value
            else:
                self._limits.pop(address, None)

    def find(self, _user: str, address: str) -> Limit | None:
        """Return what applies to an address; None: nothing does."""
        limits = self._limits
        if not limits:
            return None
        value = limits.get(address, limits.get(DEFAULT_NAME))
        return None if value is None else Limit("", address, value)


def _shortest(address: str) -> str:
    """Return an address as sockets name their peers."""
    return str(ip_address(address)) if address else DEFAULT_NAME
