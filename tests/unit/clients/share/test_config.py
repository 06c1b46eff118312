"""Settings of share consumers."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.clients.errors import ConfigError
from kraftrio.clients.share.consumer import ShareConsumer


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "needs a group_id"),
        ({"group_id": 5}, "group_id must be a string"),
        ({"share_acknowledgement_mode": "auto"}, "must be one of implicit, explicit"),
        ({"share_acquire_mode": "all"}, "must be one of batch_optimized, record_limit"),
        ({"max_poll_records": 0}, "max_poll_records must be at least 1"),
        ({"fetch_min_bytes": -1}, "fetch_min_bytes must be at least 0"),
        ({"enable_auto_commit": True}, "unknown setting enable_auto_commit"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], sentence: str) -> None:
    given = {"group_id": "g", **settings} if settings else {}
    with pytest.raises(ConfigError, match=sentence):
        ShareConsumer("localhost:1", **given)
