"""Which limit of a client quota applies to a user and a client id: `ClientLimits`.

The order is Kafka's, the first that is set applies:
1. this user with this client id; 2. this user, any client id; 3. this user;
4. any user with this client id; 5. any user, any client id; 6. any user;
7. this client id; 8. any client id.
"Any" is the default entity. Who shares a limit follows from where it was found: of 1, 2, 4 and 5
each pair of user and client id has it for itself, of 3 and 6 each user, of 7 and 8 each client id.
A client that names no client id has only what users have (3 and 6).

Pure. Called by: the quotas of the broker and of the controller.
Kafka's counterpart: ClientQuotaManager's DefaultQuotaCallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraftrio.kraft_meta.metadata.quota_image import (
    CLIENT_ID,
    DEFAULT_NAME,
    IP,
    USER,
    QuotaEntity,
)

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


class ClientLimits:
    """The limits of one quota for users and client ids.

    Args:
        key: the quota's (`quota_image`).
    """

    __slots__ = ("_key", "_limits")

    def __init__(self, key: str) -> None:
        self._key = key
        self._limits: dict[_Key, float] = {}

    def change(self, quotas: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Take over all values of some entities as they are now; None: they have none."""
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
