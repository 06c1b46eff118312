"""Which version of each API to speak with a broker: the newest that both sides know.

Owns `NodeVersions`, what one broker's ApiVersions response says. Rules:
1. A version is chosen among those our codec can write; where Kafka advertises versions that it
   does not serve (Produce 0-2), they do not count.
2. A broker that is too old for ApiVersions of our version answers in version 0 with error 35
   (KIP-511) and lists what it knows; the question is repeated in a version of its.

Pure. Called by: `node`. KIP-35, KIP-511.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftrio.clients.errors import UnsupportedVersionError
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.messages.cluster import ApiVersionsResponse
from kraftrio.wire.protocol.api import APIS, Api


@dataclass(frozen=True, slots=True)
class NodeVersions:
    """The range of versions of each API that a broker serves."""

    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> NodeVersions:
        """Take them from an ApiVersions response."""
        return cls(
            {item.api_key: (item.min_version, item.max_version) for item in response.api_keys},
            {item.name: item.max_version_level for item in response.finalized_features},
        )

    def choose(self, api_key: int, *, min_version: int = 0, max_version: int | None = None) -> int:
        """Return the version to use.

        Args:
            min_version, max_version: what the caller can do with.

        Raises:
            UnsupportedVersionError: there is none.
        """
        api = APIS[api_key]
        lowest, highest = our_range(api)
        lowest = max(lowest, min_version)
        if max_version is not None:
            highest = min(highest, max_version)
        theirs = self.ranges.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker does not serve {api.name}")
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedVersionError(
                f"the broker serves {api.name} in versions {theirs[0]} to {theirs[1]}, but"
                f" {lowest} to {highest} are needed"
            )
        return version


def our_range(api: Api) -> tuple[int, int]:
    """Return the versions of an API that we can write."""
    versions = spec_of(api.request).versions
    assert versions is not None
    return max(versions.first, api.min_version), api.max_version
