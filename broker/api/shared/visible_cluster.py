"""What clients see of the cluster, whichever API they ask with."""

from __future__ import annotations

from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.topic_names import check_topic_name


def controller_for_clients(node_id: int, live_broker_ids: list[int]) -> int:
    """Return the broker that clients take for the controller; it forwards to the active one.

    That is the broker that answers, if clients see it; -1 if they see none.
    """
    if node_id in live_broker_ids:
        return node_id
    return live_broker_ids[0] if live_broker_ids else -1


def missing_topic_code(name: str) -> ErrorCode:
    """Return the error of a topic that does not exist: its name may be illegal, too."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
