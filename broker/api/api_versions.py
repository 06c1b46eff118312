"""ApiVersions: what a listener serves, and the feature levels of the cluster.

Version notes: from 3 on clients name their software (KIP-511). 3 hides features whose least version
is 0, which clients before version 4 cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kraftrio.broker.ports import MetadataPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kraftrio.wire.protocol.api import ApiKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


class ApiVersionsHandler:
    """Serves ApiVersions (KIP-35, KIP-511, KIP-584) on one listener.

    Args:
        advertised: returns what the listener serves; called for each request, since this handler
            is itself part of that table.
        features: the feature levels this software supports, by name.
    """

    def __init__(
        self,
        advertised: Callable[[], list[ApiVersion]],
        metadata: MetadataPort,
        features: Mapping[str, tuple[int, int]],
    ) -> None:
        self._advertised = advertised
        self._metadata = metadata
        self._features = dict(sorted(features.items()))

    def table(self) -> HandlerTable:
        """The handler by API."""
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(
        self, request: ApiVersionsRequest, context: RequestContext
    ) -> ApiVersionsResponse:
        """List what is served, and note the client's software."""
        if context.api_version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.match(name) or not _SOFTWARE.match(version):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.client.software_name = name
            context.client.software_version = version
        image = self._metadata.image
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=self._advertised(),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in self._features.items()
                if low > 0 or context.api_version >= 4
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name in self._features
                if (level := image.features.get(name, 0)) > 0
            ],
        )
