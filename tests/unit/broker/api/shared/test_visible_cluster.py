"""Which broker clients take for the controller, and what is said of a topic that does not exist."""

from __future__ import annotations

import pytest

from kraftrio.broker.api.shared.visible_cluster import controller_for_clients, missing_topic_code
from kraftrio.wire.errors import ErrorCode


@pytest.mark.parametrize(("live", "shown"), [([1, 2, 3], 2), ([1, 3], 1), ([], -1)])
def test_the_controller_of_clients_is_a_live_broker(live: list[int], shown: int) -> None:
    """The one that answers, if it is live."""
    assert controller_for_clients(2, live) == shown


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_an_illegal_name_is_distinguished_from_a_missing_topic(name: str, code: ErrorCode) -> None:
    assert missing_topic_code(name) is code
