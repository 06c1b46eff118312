"""The settings of a share consumer: the Java client's names in snake_case, with its defaults.

Owns `ShareConsumerConfig` and its TypedDict `ShareConsumerSettings`. What the group decides
(share.auto.offset.reset, the time of locks, the limit of deliveries) is a setting of the group.

Called by: `share/consumer`. Kafka documentation, "Share Group Configs"; KIP-932, KIP-1206.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kraftrio.clients.arguments.times import Milliseconds
from kraftrio.clients.config import ClientConfig, ClientSettings, require_choice, require_text
from kraftrio.clients.errors import ConfigError

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]

_ACQUIRE_MODES: tuple[AcquireMode, ...] = ("batch_optimized", "record_limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """The settings of a share consumer."""

    group_id: str = ""
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    share_acquire_mode: AcquireMode = "batch_optimized"
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    client_rack: str = ""

    @property
    def is_explicit(self) -> bool:
        """Whether the program acknowledges each record."""
        return self.share_acknowledgement_mode == "explicit"

    @property
    def acquire_mode(self) -> int:
        """`share_acquire_mode` as the protocol writes it."""
        return _ACQUIRE_MODES.index(self.share_acquire_mode)

    def check(self) -> None:
        """Check all values.

        Raises:
            ConfigError: one is wrong.
        """
        super(ShareConsumerConfig, self).check()  # slots make another class
        for name in ("max_poll_interval_ms", "max_poll_records", "fetch_max_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.fetch_min_bytes < 0:
            raise ConfigError(f"fetch_min_bytes must be at least 0, not {self.fetch_min_bytes}")
        require_text("group_id", self.group_id)
        if not self.group_id:
            raise ConfigError("a share consumer needs a group_id")
        require_text("client_rack", self.client_rack)
        require_choice(
            "share_acknowledgement_mode",
            self.share_acknowledgement_mode,
            ("implicit", "explicit"),
        )
        require_choice("share_acquire_mode", self.share_acquire_mode, _ACQUIRE_MODES)


class ShareConsumerSettings(ClientSettings, total=False):
    """The keyword arguments of `ShareConsumer`; see `ShareConsumerConfig`."""

    group_id: str
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode
    max_poll_interval_ms: Milliseconds
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: Milliseconds
    check_crcs: bool
    client_rack: str
