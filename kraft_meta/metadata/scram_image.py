"""The SCRAM credentials of the cluster's users, a part of its metadata: `ScramChanges`.

Rule: a user may have one credential of each mechanism. What is kept cannot make a proof, but who
has it can guess passwords: it is never shown.

Called by: image.py; the controller, which alters credentials; requests about them; logins.
Kafka's counterpart: ScramImage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from kraftrio.kraft_meta.metadata.image_parts import ImagePart
from kraftrio.kraft_meta.metadata.security_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kraftrio.wire.sasl.scram_keys import ScramCredential


class ScramUser(NamedTuple):
    """Whose credential, and of which mechanism: the number of a `ScramMechanism`."""

    name: str
    mechanism: int


class ScramChanges(ImagePart[ScramUser, ScramCredential]):
    """What changes among the credentials."""

    FIELD = "scram_credentials"
    RECORDS = (UserScramCredentialRecord, RemoveUserScramCredentialRecord)

    __slots__ = ()

    def replay(self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> None:
        user = ScramUser(record.name, record.mechanism)
        if isinstance(record, RemoveUserScramCredentialRecord):
            self.remove(user)
        else:
            self.changed[user] = ScramCredential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )

    @staticmethod
    def to_records(
        entries: Map[ScramUser, ScramCredential],
    ) -> Iterator[UserScramCredentialRecord]:
        for user in sorted(entries):
            yield credential_record(user, entries[user])


def credential_record(user: ScramUser, credential: ScramCredential) -> UserScramCredentialRecord:
    """Return the record that gives a user a credential."""
    return UserScramCredentialRecord(user.name, user.mechanism, *credential)
