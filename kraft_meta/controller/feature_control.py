"""UpdateFeatures, and the features that a new cluster starts with.

Behaviour: all updates of a request succeed, or none (the answer names the first that failed).
A level must be in the range that this controller and every registered broker support; going down
needs an upgrade type that allows it, and metadata.version never goes down, since our record
formats are those of its highest level (Kafka refuses likewise where metadata could be lost).
Version notes: v0 has allow_downgrade, v1 upgrade_type and validate_only, v2 no results (KIP-584,
KIP-778).

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
from kraftrio.kraft_meta.metadata.image import MetadataImage
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


def bootstrap_records(config: ControllerConfig, cluster_id: str) -> list[MetadataRecord]:
    """Return what a new cluster's log begins with."""
    records: list[MetadataRecord] = [ClusterIdRecord(cluster_id)]
    names = sorted(config.supported_features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        _lowest, highest = config.supported_features[name]
        if highest > 0:
            records.append(FeatureLevelRecord(name, highest))
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
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    if request.validate_only:
        records = []
    return ControllerResult(records, UpdateFeaturesResponse(error_message=None, results=results))


def _check_update(update: FeatureUpdateKey, context: DecisionContext) -> None:
    name, level = update.feature, update.max_version_level
    current = context.image.features.get(name, 0)
    supported = context.config.supported_features.get(name)
    where = f"Invalid update version {level} for feature {name}."
    if context.api_version == 0:
        upgrade_type = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    else:
        upgrade_type = update.upgrade_type
    reason = None
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        reason = f"{where} The controller does not support the given upgrade type."
    elif supported is None:
        reason = f"{where} Local controller {context.config.node_id} does not support this feature."
    elif not (level == 0 and name != METADATA_VERSION) and not (
        supported[0] <= level <= supported[1]
    ):
        reason = (
            f"{where} Local controller {context.config.node_id} only supports versions "
            f"{supported[0]}-{supported[1]}"
        )
    elif level < current and upgrade_type == _UPGRADE:
        reason = (
            f"{where} Can't downgrade the version of this feature without setting the upgrade "
            "type to either safe or unsafe downgrade."
        )
    elif level < current and name == METADATA_VERSION:
        reason = f"Unsupported {METADATA_VERSION} downgrade from {current} to {level}. " + (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
            if upgrade_type == _SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
    else:
        reason = _broker_refusal(context.image, name, level, where)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, reason)


def _broker_refusal(image: MetadataImage, name: str, level: int, where: str) -> str | None:
    for broker_id in sorted(image.brokers):
        for feature in image.brokers[broker_id].features:
            if feature.name == name and not (
                feature.min_supported_version <= level <= feature.max_supported_version
            ):
                return (
                    f"{where} Broker {broker_id} only supports versions "
                    f"{feature.min_supported_version}-{feature.max_supported_version}"
                )
    return None
