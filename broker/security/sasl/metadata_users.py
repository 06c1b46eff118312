"""The users whom a node knows for SCRAM: those of the metadata, and itself.

Owns: `MetadataUsers`, a `ScramCredentials`. Rules
1. What the newest metadata says counts: a login with a credential that it removed is refused.
2. A node that has seen no leader since it started may not have the newest metadata, or none at
   all: that is with nodes which cannot log in to each other before. Nor can those of a new cluster,
   whose first users are not committed yet. So up to then the user that it logs in as itself counts,
   too, with its own password: the nodes of a cluster have it in common.
3. A delegation token is a user whose password is its HMAC. Its credentials are made once, when it
   is used first (2 ms).

Called by: logins; `node` hands on the metadata.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from kraftrio.base.secret import Secret
from kraftrio.broker.security.sasl.scram import TokenCredential
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.scram_image import ScramUser
from kraftrio.kraft_meta.metadata.token_image import token_hmac
from kraftrio.wire.sasl.scram_keys import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

_SALT_BYTES = 20
_MOST_KEPT = 10_000  # credentials of tokens


class MetadataUsers:
    """See the module.

    Args:
        new_salt: returns so many random bytes.
        secret_key: what makes the HMACs of delegation tokens; None: there are none.
    """

    def __init__(self, new_salt: Callable[[int], bytes], secret_key: Secret | None = None) -> None:
        self._new_salt = new_salt
        self._secret_key = secret_key
        self._of_tokens: dict[ScramUser, ScramCredential] = {}
        self._image = MetadataImage()
        self._is_current = False
        self._own: dict[ScramUser, ScramCredential] = {}

    def add_own_credential(self, mechanism: ScramMechanism, user: str, password: Secret) -> None:
        """Rule 2: as whom this node logs in elsewhere."""
        if not self._is_current:
            self._own[ScramUser(user, mechanism)] = self._made(mechanism, password.reveal())

    def on_metadata(self, image: MetadataImage, *, is_current: bool) -> None:
        """Take the newest metadata.

        Args:
            is_current: a leader has said what is committed, since this node started.
        """
        self._image = image
        if is_current and image.scram_credentials and not self._is_current:
            self._is_current = True
            self._own.clear()

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential (see `ScramCredentials`)."""
        key = ScramUser(user, mechanism)
        return self._image.scram_credentials.get(key) or self._own.get(key)

    def token(
        self, mechanism: ScramMechanism, token_id: str, now_ms: int
    ) -> TokenCredential | None:
        """Return what goes with a delegation token (see `ScramCredentials`)."""
        token = self._image.delegation_tokens.get(token_id)
        if token is None or self._secret_key is None or token.is_expired(now_ms):
            return None
        key = ScramUser(token_id, mechanism)
        credential = self._of_tokens.get(key)
        if credential is None:
            password = base64.b64encode(token_hmac(self._secret_key, token_id)).decode()
            if len(self._of_tokens) >= _MOST_KEPT:
                self._of_tokens.clear()
            credential = self._of_tokens[key] = self._made(mechanism, password)
        owner = token.owner.partition(":")[2]
        return TokenCredential(owner, credential, token.expiry_ms)

    def _made(self, mechanism: ScramMechanism, password: str) -> ScramCredential:
        salt = self._new_salt(_SALT_BYTES)
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        return credential_of(mechanism, salted, salt, MIN_ITERATIONS)
