"""UpdateFeatures, and the features that a new cluster starts with.

Behaviour: all updates of a request succeed, or none (the answer names the first that failed).
A level must be in the range that this controller and every registered broker support, where one
that names no range knows level 0 only (a release from before the feature). Going down needs an
upgrade type that allows it, and metadata.version never goes down, since our record formats are
those of its highest level (Kafka also refuses where metadata could be lost).
Version notes: v0 has allow_downgrade, which Kafka's controllers do not look at (nothing goes down
by it), v1 upgrade_type and validate_only, v2 no results (KIP-584, KIP-778).

Called by: controller.py. Kafka's counterpart: FeatureControlManager.
"""

from __future__ import annotations

from typing import Final

from kraftrio.kraft_meta.controller.control import (
    METADATA_VERSION,
    ControllerConfig,
    ControllerResult,
    DecisionContext,
)
from kraftrio.kraft_meta.metadata.image import BrokerImage
from kraftrio.kraft_meta.metadata.records import ClusterIdRecord, FeatureLevelRecord, MetadataRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.quorum import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3
_DISABLED: Final = (0, 0)  # the range of a feature that a node does not name


def bootstrap_records(config: ControllerConfig, cluster_id: str) -> list[MetadataRecord]:
    """Return what a new cluster's log begins with."""
    records: list[MetadataRecord] = [ClusterIdRecord(cluster_id)]
    names = sorted(config.supported_features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        _lowest, highest = config.supported_features[name]
        if highest > 0:
            records.append(FeatureLevelRecord(name, highest))
    records += config.first_credentials
    return records


def update_features(request: UpdateFeaturesRequest, context: DecisionContext) -> ControllerResult:
    """Finalize new levels of features."""
    records: list[MetadataRecord] = []
    try:
        for update in request.feature_updates:
            _check_update(update, context)
            if update.max_version_level != context.image.features.get(update.feature, 0):
                records.append(FeatureLevelRecord(update.feature, update.max_version_level))
    except KafkaError as error:
        message = (
            "The update failed for all features since the following feature had an error: "
            f"{error.message}"
        )
        return ControllerResult(
            [], UpdateFeaturesResponse(error_code=error.code, error_message=message)
        )
    results = []
    if context.api_version <= 1:
        results = [
            UpdatableFeatureResult(feature=update.feature, error_message="NONE")
            for update in request.feature_updates
        ]
    if request.validate_only:
        records = []
    return ControllerResult(records, UpdateFeaturesResponse(error_message=None, results=results))


def _check_update(update: FeatureUpdateKey, context: DecisionContext) -> None:
    """Raise INVALID_UPDATE_VERSION for a level that may not be finalized, with Kafka's reason."""
    name, level = update.feature, update.max_version_level
    upgrade_type = update.upgrade_type
    current = context.image.features.get(name, 0)
    reason = None
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        reason = _not_supported(context, name, level)
    if reason is None and level < current and upgrade_type == _UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if reason is None and level > current and upgrade_type != _UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason is not None:
        reason = f"Invalid update version {level} for feature {name}. {reason}"
    elif level < current and name == METADATA_VERSION:
        reason = f"Unsupported {METADATA_VERSION} downgrade from {current} to {level}. " + (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
            if upgrade_type == _SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, reason)


def _not_supported(context: DecisionContext, name: str, level: int) -> str | None:
    """Return who keeps a level from being finalized, this controller or a registered broker."""
    supported = context.config.supported_features.get(name, _DISABLED)
    if (
        name not in context.config.supported_features
        and level == 0
        and name not in context.image.features
    ):
        return f"Feature {name} not found."
    reason = _out_of_range(f"Local controller {context.config.node_id}", supported, level)
    brokers = context.image.brokers
    for broker_id in sorted(brokers):
        if reason is None:
            supported = _range_of(brokers[broker_id], name)
            reason = _out_of_range(f"Broker {broker_id}", supported, level)
    return reason


def _range_of(broker: BrokerImage, name: str) -> tuple[int, int]:
    """Return the levels of a feature that a broker registered with."""
    return next(
        ((lowest, highest) for one, lowest, highest in broker.features if one == name), _DISABLED
    )


def _out_of_range(who: str, supported: tuple[int, int], level: int) -> str | None:
    lowest, highest = supported
    if lowest <= level <= highest:
        return None
    if highest == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {lowest}-{highest}"
