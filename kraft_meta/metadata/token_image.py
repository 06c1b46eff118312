"""The delegation tokens of the cluster (KIP-48), a part of its metadata: `DelegationToken`.

Rule: the HMAC by which a token is known to whoever has it is in no record: it is made of the
token's id and the secret that all nodes have (`delegation.token.secret.key`).

Called by: image.py; the controller, which makes and ends tokens; requests about them; logins.
Kafka's counterparts: DelegationTokenImage, TokenInformation.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from kraftrio.base.secret import Secret
from kraftrio.kraft_meta.metadata.image_parts import ImagePart
from kraftrio.kraft_meta.metadata.security_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)


class DelegationToken(NamedTuple):
    """A token; principals are texts like `User:alice`, times those of the wall clock."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: float) -> bool:
        """Whether it has expired."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether a principal may renew it, or end it."""
        return principal == self.owner or principal in self.renewers

    def to_record(self) -> DelegationTokenRecord:
        """Return the record that says this."""
        return DelegationTokenRecord(
            owner=self.owner,
            requester=self.requester,
            renewers=self.renewers,
            issue_timestamp=self.issue_ms,
            max_timestamp=self.max_ms,
            expiration_timestamp=self.expiry_ms,
            token_id=self.token_id,
        )


def token_hmac(secret_key: Secret, token_id: str) -> bytes:
    """Return what a token is known by."""
    return hmac.digest(secret_key.reveal().encode(), token_id.encode(), "sha512")


class TokenChanges(ImagePart[str, DelegationToken]):
    """What changes among the tokens, by id."""

    FIELD = "delegation_tokens"
    RECORDS = (DelegationTokenRecord, RemoveDelegationTokenRecord)

    __slots__ = ()

    def replay(self, record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> None:
        if isinstance(record, RemoveDelegationTokenRecord):
            self.remove(record.token_id)
        else:
            self.changed[record.token_id] = DelegationToken(
                token_id=record.token_id,
                owner=record.owner,
                requester=record.requester,
                renewers=record.renewers,
                issue_ms=record.issue_timestamp,
                max_ms=record.max_timestamp,
                expiry_ms=record.expiration_timestamp,
            )

    @staticmethod
    def to_records(entries: Map[str, DelegationToken]) -> Iterator[DelegationTokenRecord]:
        for token_id in sorted(entries):
            yield entries[token_id].to_record()
