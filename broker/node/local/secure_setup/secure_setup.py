"""Makes a node, or a cluster on one machine, secure before its first start: one command's work.

Owns: which files there are, and what they are called. Rules:
1. In `DIR/security/` lie the authority's certificate `ca.pem` and key `ca.key`, a key store for
   each node and one for the administrator; in `DIR` what clients are configured with.
2. Nothing is overwritten: where one of the files is there already, nothing is written at all.

Called by: the command line, and `cluster_layout` for a whole cluster.
"""

from __future__ import annotations

import datetime
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftrio.broker.log.files import FileSystem
from kraftrio.broker.node.local.secure_setup import property_files
from kraftrio.broker.node.local.secure_setup.new_files import NewFile, write_new_files
from kraftrio.broker.node.local.secure_setup.property_files import NodeAddress

ADMINISTRATOR: Final = "admin"
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")

CLIENT_FILES: Final = {
    "client.properties": "for Java clients and Apache's tools, by password",
    "client-certificate.properties": "for Java clients and Apache's tools, by certificate",
    "librdkafka.properties": "for kcat (-F) and other clients on librdkafka, by password",
    "librdkafka-certificate.properties": "the same by certificate",
}
_FOLDER: Final = "security"
_PASSWORD_BYTES: Final = 18
_SALT_BYTES: Final = 32


class SecureSetupError(Exception):
    """The files cannot be written; the text is one plain sentence for the user."""


@dataclass(frozen=True, slots=True)
class SecureSetup:
    """What is secured.

    Attributes:
        directory: where the files go, absolute.
        nodes: where each node is reached.
    """

    directory: str
    nodes: Mapping[int, NodeAddress]

    def is_there(self, fs: FileSystem) -> bool:
        """Whether the files have been made before."""
        return fs.exists(self.trust_store)

    @property
    def trust_store(self) -> str:
        """The file that everybody trusts."""
        return posixpath.join(self.directory, _FOLDER, "ca.pem")

    @property
    def administrator_store(self) -> str:
        """The file with the administrator's key and certificates."""
        return posixpath.join(self.directory, _FOLDER, f"{ADMINISTRATOR}.pem")

    @property
    def first_users(self) -> str:
        """The file with the users of a new cluster."""
        return posixpath.join(self.directory, _FOLDER, "first-users")

    def node_store(self, node_id: int) -> str:
        """The file with a node's key and certificates."""
        return posixpath.join(self.directory, _FOLDER, f"node-{node_id}.pem")

    def node_properties(self, node_id: int) -> dict[str, str]:
        """Return the properties that make a node's listeners secure."""
        return property_files.listener_properties(
            self.nodes[node_id],
            self.node_store(node_id),
            self.trust_store,
            self.first_users,
            ADMINISTRATOR,
        )

    def files(self, now: datetime.datetime, password: str) -> list[NewFile]:
        """Make keys and certificates, and return all files but those of the nodes' properties.

        Args:
            now: when certificates begin to be valid, in UTC.
            password: the administrator's.
        """
        # Here, since only making new certificates needs the library.
        from kraftrio.broker.node.local.secure_setup.certificates import (
            CERTIFICATE_DAYS,
            CertificateAuthority,
        )

        authority = CertificateAuthority(now)
        until = (now + datetime.timedelta(days=CERTIFICATE_DAYS)).date()
        issued = f"valid until {until}"
        key_path = posixpath.join(self.directory, _FOLDER, "ca.key")
        files = [
            NewFile(
                self.trust_store,
                authority.certificate,
                "the certificate of your own certificate authority; give it to every client",
                is_private=False,
            ),
            NewFile(
                key_path,
                authority.private_key,
                "its private key; whoever has it can make certificates that all trust",
            ),
        ]
        for node_id, address in self.nodes.items():
            names = dict.fromkeys((address.host, *address.other_hosts, *LOCAL_NAMES))
            store = authority.issue_server(property_files.NODE_USER, list(names))
            purpose = f"key and certificate of node {node_id}, {issued}"
            files.append(NewFile(self.node_store(node_id), store, purpose))
        files.append(
            NewFile(
                self.administrator_store,
                authority.issue_client(ADMINISTRATOR),
                f"key and certificate of the user {ADMINISTRATOR}, {issued}",
            )
        )
        user = property_files.first_user_text(
            ADMINISTRATOR, password, secrets.token_bytes(_SALT_BYTES)
        )
        purpose = f"the user {ADMINISTRATOR} for a cluster that starts for the first time"
        files.append(NewFile(self.first_users, user.encode(), purpose))
        return files + self._client_files(password)

    def _client_files(self, password: str) -> list[NewFile]:
        passwords = ",".join(node.for_passwords for node in self.nodes.values())
        certificates = ",".join(node.for_certificates for node in self.nodes.values())
        by_password = (passwords, self.trust_store, ADMINISTRATOR, password)
        by_certificate = (certificates, self.trust_store, self.administrator_store)
        java, librdkafka = property_files.properties_text, property_files.librdkafka_text
        texts = (
            java(property_files.password_client(*by_password)),
            java(property_files.certificate_client(*by_certificate)),
            librdkafka(property_files.librdkafka_password_client(*by_password)),
            librdkafka(property_files.librdkafka_certificate_client(*by_certificate)),
        )
        return [
            NewFile(posixpath.join(self.directory, name), text.encode(), purpose)
            for (name, purpose), text in zip(CLIENT_FILES.items(), texts, strict=True)
        ]


def what_clients_need(directory: str) -> list[str]:
    """Say which files say how to get in."""
    return [
        *(f"{posixpath.join(directory, name)}: {use}" for name, use in CLIENT_FILES.items()),
        f"The user {ADMINISTRATOR} may do everything; others what ACLs allow them.",
    ]


def new_password() -> str:
    """Return a random password."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def write_setup(files: Sequence[NewFile]) -> None:
    """Write the files, or none of them.

    Raises:
        SecureSetupError: one is there already, or cannot be written.
    """
    try:
        write_new_files(files)
    except FileExistsError as error:
        raise SecureSetupError(
            f"{error.filename} is there already: nothing was written, and nothing is overwritten"
        ) from error
    except OSError as error:
        raise SecureSetupError(
            f"cannot write {error.filename}: {error.strerror or error}"
        ) from error
