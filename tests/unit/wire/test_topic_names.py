"""Legal topic names and collisions."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.topic_names import check_topic_name, find_collision


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "_", "a" * 249])
def test_legal_names(name: str) -> None:
    """Nothing is raised."""
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("a,b", "contains one or more characters other than"),
    ],
)
def test_illegal_names(name: str, reason: str) -> None:
    """Kafka's code and reasons."""
    with pytest.raises(KafkaError, match=reason.replace(".", r"\.")) as caught:
        check_topic_name(name)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("name", "existing", "expected"),
    [
        ("a.b", ["a_b"], "a_b"),
        ("a_b", ["a.b", "c"], "a.b"),
        ("a.b", ["a.b"], None),
        ("ab", ["a.b"], None),
        ("a.b.c", ["a_b_c", "a.b_c"], "a.b_c"),
    ],
)
def test_collisions(name: str, existing: list[str], expected: str | None) -> None:
    """Only '.' against '_' counts; a name does not collide with itself."""
    assert find_collision(name, existing) == expected
