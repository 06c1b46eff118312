"""A cluster all of whose links log in by SCRAM: what its nodes are set to, and its clients.

Owns: `SASL`, the properties of its nodes; `first_users`; `as_user`, the networks of its clients.
The nodes are the user `node`. TLS is left out: its randomness is not the world's.

Called by: the scenarios, and seeds whose cluster is secured.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from kraftrio.broker.node.security.first_users import first_credentials
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.net.sasl.credentials import client_credentials
from kraftrio.net.sasl.login import SaslLogin
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.transport import Network
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraftrio.wire.sasl.scram_keys import ScramMechanism, salted_password

SHA_256 = ScramMechanism.SCRAM_SHA_256
MECHANISM = SHA_256.mechanism_name
ITERATIONS = 4096
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_NODE_JAAS = f"{_MODULE} required username=node password=own;"
SASL = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": MECHANISM,
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": _NODE_JAAS,
    "listener.name.controller.scram-sha-256.sasl.jaas.config": _NODE_JAAS,
    "delegation.token.secret.key": "a key of all nodes",
    "delegation.token.expiry.check.interval.ms": "5000",
}


def first_users(user: str, password: str) -> tuple[UserScramCredentialRecord, ...]:
    """The credentials of the nodes' own user and of one more."""
    return first_credentials(
        [f"{MECHANISM}=[name=node,password=own]", f"{MECHANISM}=[name={user},password={password}]"],
        lambda size: b"s" * size,
    )


def as_user(user: str, password: str, *more: str) -> Callable[[Network], Network]:
    """Make the networks of clients that log in as this user; `more`: further options."""
    rng = random.Random(f"{user} {password}")
    settings = {
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{user}" password="{password}"'
        f"{''.join(more)};",
    }

    async def run_here(work: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        work()

    def secured(network: Network) -> Network:
        credentials = client_credentials(settings, rng, lambda: 0)
        return SecuredNetwork(network, login=SaslLogin(credentials, run_here, rng, "client"))

    return secured


def upsert(user: str, password: str, salt: bytes = b"salt") -> AlterUserScramCredentialsRequest:
    """Ask for a credential of a user."""
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=SHA_256,
        iterations=ITERATIONS,
        salt=salt,
        salted_password=salted_password(SHA_256, password, salt, ITERATIONS),
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def delete(user: str) -> AlterUserScramCredentialsRequest:
    """Ask for a user to have none any more."""
    deletion = ScramCredentialDeletion(name=user, mechanism=SHA_256)
    return AlterUserScramCredentialsRequest(deletions=[deletion])
