"""The settings of this broker's replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftrio.broker.log.log_config import LogConfig


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """See the module.

    Attributes:
        broker_id: node.id.
        topic_log_config: name of a topic -> its effective log configuration, by the newest image.
        lag_time_max_ms: replica.lag.time.max.ms.
        freeze_objects: called once many objects were made that stay (see `Environment`).
    """

    broker_id: int
    topic_log_config: Callable[[str], LogConfig]
    lag_time_max_ms: float = 30_000
    freeze_objects: Callable[[], None] = lambda: None
