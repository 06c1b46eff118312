"""Nodes in this process: they keep ports and disks over a kill, and failures are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kraftrio.testing.contents import Contents
from kraftrio.testing.local_nodes import LocalNodes, NodesSpec


async def test_a_node_keeps_what_it_has() -> None:
    """After a kill it is found at its address, with what was written."""
    nodes = LocalNodes(NodesSpec(1, {}))
    node = nodes.by_id[1]
    async with trio.open_nursery() as nursery:
        await nodes.start(nursery)
        contents = Contents(nodes.bootstrap_servers)
        await nursery.start(contents.run)
        await contents.create_topic("orders", 1, 1, {})
        await node.kill()
        assert not node.is_running
        await node.start(nursery)
        assert list(await contents.topics()) == ["orders"]
        await node.stop()
        assert nodes.failures() == []
        nursery.cancel_scope.cancel()
    nodes.close()


async def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nodes = LocalNodes(NodesSpec(1, {}, folder=str(tmp_path / "file")))
    async with trio.open_nursery() as nursery:
        with pytest.raises(RuntimeError, match="node 1 ended: StartError: "):
            await nodes.by_id[1].start(nursery)
    assert len(nodes.failures()) == 1
    nodes.close()
