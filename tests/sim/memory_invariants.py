"""What nodes hold in memory for their connections stays within its bound.

Owns: `check_memory`. Beyond the limit of a budget a node may hold a little per connection, what was
granted last, and one request or answer that waited longest (see `broker/server/memory_budget.py`).
"""

from __future__ import annotations

from kraftrio.broker.server.memory_budget import MemoryBudget
from kraftrio.testing.simulation.cluster import SimNode
from kraftrio.testing.simulation.world import SimulationFailure


def check_memory(node: SimNode) -> None:
    """Check both budgets of a running node."""
    assert node.node is not None
    resources = node.node._context.resources
    check_budget(f"requests of {node.name}", resources.request_memory)
    check_budget(f"answers of {node.name}", resources.response_memory)


def check_budget(name: str, budget: MemoryBudget) -> None:
    """Check one."""
    used = budget.used_bytes
    if not used:
        return
    held = sorted(share.held_bytes for share in budget._large if share is not budget._beyond)
    if used < 0 or sum(held[:-1]) > budget.limit_bytes:
        raise SimulationFailure(
            f"{used} bytes are held for {name}, {held} by the largest, where"
            f" {budget.limit_bytes} is the limit"
        )
