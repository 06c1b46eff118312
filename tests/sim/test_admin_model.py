"""What an administrator was answered must hold; what was not answered is open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kraftrio.wire.errors import ErrorCode
from tests.sim.admin_model import AdminModel

OK, LATE = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


def image(topics: dict[str, int], **configs: str) -> Any:
    """Metadata with topics of so many partitions, and settings of "t"."""
    return SimpleNamespace(
        topic=lambda name: (
            SimpleNamespace(partitions=range(topics[name])) if name in topics else None
        ),
        config=lambda _kind, name: configs if name == "t" else {},
    )


def test_what_was_acknowledged_must_be_there() -> None:
    model = AdminModel()
    model.on_answer("t", OK, 2)
    model.on_answer("t", OK, 5)
    assert model.missing(image({"t": 5})) == ""
    assert "has 2 partitions" in model.missing(image({"t": 2}))
    assert "has 0 partitions" in model.missing(image({}))


def test_what_was_deleted_must_be_gone() -> None:
    model = AdminModel()
    model.on_answer("t", OK, 2)
    model.on_answer("t", OK, 0)
    assert model.gone() == ["t"]
    assert model.missing(image({})) == ""
    assert "has 2 partitions" in model.missing(image({"t": 2}))


def test_what_was_not_answered_is_open_for_ever() -> None:
    """A late request may still be carried out, so the name is used no more."""
    for code in (None, LATE, ErrorCode.TOPIC_ALREADY_EXISTS):
        model = AdminModel()
        name = model.name(1)
        model.on_answer(name, cast(Any, code), 2)
        assert model.missing(image({})) == model.missing(image({name: 2})) == ""
        assert model.name(1) != name


def test_a_refusal_changes_nothing() -> None:
    model = AdminModel()
    model.on_answer("t", OK, 2)
    model.on_answer("t", ErrorCode.INVALID_PARTITIONS, 1)
    model.on_answer("t", ErrorCode.TOPIC_ALREADY_EXISTS, 3)
    assert model.missing(image({"t": 2})) == ""
    assert "has 1 partitions" in model.missing(image({"t": 1}))


def test_settings_hold_until_one_is_open() -> None:
    model = AdminModel()
    model.on_config("t", "x", "1", OK)
    assert model.missing(image({}, x="1")) == ""
    assert "x of t is 2" in model.missing(image({}, x="2"))
    model.on_config("t", "x", "2", LATE)
    model.on_config("t", "x", "3", OK)
    assert model.missing(image({}, x="2")) == ""
