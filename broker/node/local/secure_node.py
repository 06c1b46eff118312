"""One secure node: its files, before its first start.

Called by: the command line.
"""

from __future__ import annotations

import datetime
import posixpath
from collections.abc import Sequence
from typing import Final

from kraftrio.broker.node.local.cluster_layout import node_properties
from kraftrio.broker.node.local.secure_setup.new_files import NewFile
from kraftrio.broker.node.local.secure_setup.property_files import NodeAddress, properties_text
from kraftrio.broker.node.local.secure_setup.secure_setup import SecureSetup

_NODE_ID: Final = 1
_LOCAL: Final = "localhost"


def secure_node_files(
    directory: str,
    hosts: Sequence[str],
    port: int,
    *,
    now: datetime.datetime,
    password: str,
) -> list[NewFile]:
    """Make all files of a node that has its data in `directory/data`.

    Args:
        directory: absolute.
        hosts: the names and addresses that clients use; the first is the advertised one. Without
            any the node is for this machine alone.
        port: of the listener for clients with a password; two more follow it.
        now: when certificates begin to be valid, in UTC.
        password: the administrator's.
    """
    address = (
        NodeAddress(hosts[0], port, "", tuple(hosts[1:]))
        if hosts
        else NodeAddress(_LOCAL, port, _LOCAL)
    )
    setup = SecureSetup(directory, {_NODE_ID: address})
    data = posixpath.join(directory, "data")
    properties = node_properties(_NODE_ID, {_NODE_ID: (_LOCAL, port)}, data)
    properties |= setup.node_properties(_NODE_ID)
    config_file = posixpath.join(directory, "server.properties")
    purpose = f"the node: kraftrio start --config {config_file}"
    content = properties_text(properties).encode()
    return [*setup.files(now, password), NewFile(config_file, content, purpose)]
