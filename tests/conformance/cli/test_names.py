"""Names of topics and groups that the shell completes, as bash asks for them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.conformance.broker_process import free_port_pair
from tests.conformance.cli.terminal import DEADLINE_S, run


def complete(words: str, bootstrap: str) -> list[str]:
    """Return the completions of the last word."""
    environment = {
        **os.environ,
        "_KRAFTRIO_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "KRAFTRIO_BOOTSTRAP_SERVER": bootstrap,
    }
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "kraftrio"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert not ended.stderr
    return [line.split(",", 1)[1] for line in ended.stdout.splitlines() if line]


def test_names_that_the_cluster_has(bootstrap: str, unique_topic: Callable[[], str]) -> None:
    topic = unique_topic()
    assert run("topic", "create", f"{topic}-a", f"{topic}-b", bootstrap=bootstrap).status == 0
    run("produce", f"{topic}-a", bootstrap=bootstrap, typed=b"x\n")
    read = run(
        "consume",
        f"{topic}-a",
        "--group",
        f"{topic}-group",
        "--from-beginning",
        bootstrap=bootstrap,
    )
    assert read.output == "x\n"
    both = [f"{topic}-a", f"{topic}-b"]
    for words in ("kraftrio consume", "kraftrio topic describe", "kraftrio reassign cancel"):
        assert complete(f"{words} {topic}", bootstrap) == both
    assert complete(f"kraftrio topic delete {topic}-a {topic}", bootstrap) == both[1:]
    assert not complete(f"kraftrio topic create {topic}", bootstrap)
    assert complete(f"kraftrio group delete {topic}", bootstrap) == [f"{topic}-group"]
    assert complete(f"kraftrio consume x --group {topic}", bootstrap) == [f"{topic}-group"]
    assert "__consumer_offsets" in complete("kraftrio topic offsets _", bootstrap)
    unused_address = f"127.0.0.1:{free_port_pair()}"
    typed = f"kraftrio consume --bootstrap-server {bootstrap} {topic}"
    assert complete(typed, unused_address) == both


@pytest.mark.parametrize("config", ["", "--config /nowhere/client.properties "])
def test_nothing_where_nobody_answers(config: str) -> None:
    """Nor does a broker that hangs hold up the prompt."""
    assert not complete(f"kraftrio consume {config}o", f"127.0.0.1:{free_port_pair()}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_at = time.monotonic()
        assert not complete(f"kraftrio consume {config}o", f"127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began_at < DEADLINE_S / 2
