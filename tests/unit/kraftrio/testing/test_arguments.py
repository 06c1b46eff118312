"""What tests hand over: seconds, settings of nodes, names of the protocol."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kraftrio.testing.arguments import known_name, node_config, seconds


def test_seconds() -> None:
    assert seconds("timeout_s", 0.5) == 0.5
    assert seconds("by", -60, is_signed=True) == -60
    for wrong in ("1", None, True):
        with pytest.raises(
            TypeError, match=f"timeout_s must be a number of seconds, not {wrong!r}"
        ):
            seconds("timeout_s", wrong)
    for less in (-1, float("nan")):
        with pytest.raises(ValueError, match=f"timeout_s must .* 0 or more, but is {less}"):
            seconds("timeout_s", less)
    with pytest.raises(ValueError, match="but is nan"):
        seconds("by", float("nan"), is_signed=True)


def test_properties_of_nodes() -> None:
    given = {"auto.create.topics.enable": False, "a.ms": timedelta(seconds=2), "b": 5, "c": None}
    assert node_config(given) == {"auto.create.topics.enable": "false", "a.ms": "2000", "b": "5"}
    assert node_config(None) == {}
    with pytest.raises(ValueError, match="config: 'listeners' is set by the cluster for each node"):
        node_config({"listeners": "PLAINTEXT://:9092"})


def test_names() -> None:
    names = ["OffsetCommit", "Produce"]
    assert known_name("request", "Produce", names, "OffsetCommit") == "Produce"
    for meant in ("PRODUCE", "produce", "Prodce"):
        with pytest.raises(ValueError, match=f"no request '{meant}'; do you mean 'Produce'"):
            known_name("request", meant, names, "OffsetCommit")
    for strange in ("zzz", 5):
        with pytest.raises(
            ValueError, match=f"no request {strange!r}; an example is 'OffsetCommit"
        ):
            known_name("request", strange, names, "OffsetCommit")
