"""`kraftrio cluster`: alone it runs several nodes (`node`), with a command it looks at a cluster.

Called by: `root`.
"""

from __future__ import annotations

from kraftrio.clients.cli.lazy_group import Entry, LazyGroup
from kraftrio.commands.node_options import options_of

_COMMANDS = "kraftrio.clients.cli.cluster.commands"

cluster = LazyGroup(
    "cluster",
    params=options_of("cluster"),
    invoke_without_command=True,
    help="Run several nodes of one cluster on this machine in the foreground; or, with a command,"
    " look at a cluster that runs.",
    epilog="Example: kraftrio cluster health --bootstrap-server localhost:9092",
    entries={
        "describe": Entry(f"{_COMMANDS}:describe", "Show the brokers and the controller."),
        "health": Entry(f"{_COMMANDS}:health", "Find partitions that are not as they should be."),
        "quorum": Entry(f"{_COMMANDS}:quorum", "Show the metadata quorum."),
        "unregister": Entry(f"{_COMMANDS}:unregister", "Forget a broker that is gone for good."),
    },
)
