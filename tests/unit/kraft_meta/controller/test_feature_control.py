"""UpdateFeatures, and what a new cluster starts with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftrio.kraft_meta.controller.control import registered_features
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    BrokerRegistrationRequest,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.unit.kraft_meta.controller.context import CLUSTER_ID, ControllerContext

# A release that serves more than today's.
FEATURES = {"metadata.version": (7, 30), "group.version": (0, 1), "transaction.version": (0, 2)}


def several_features() -> ControllerContext:
    return ControllerContext(supported_features=FEATURES)


def update(
    context: ControllerContext, *updates: tuple[str, int, int], api_version: int = 2, **options: Any
) -> Any:
    return context.send(
        UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level, kind in updates
            ],
            **options,
        ),
        api_version=api_version,
    )


def register(context: ControllerContext, features: dict[str, tuple[int, int]]) -> ErrorCode:
    """Register broker 1 with the features of its release."""
    request = BrokerRegistrationRequest(
        broker_id=1, cluster_id=CLUSTER_ID, features=registered_features(features)
    )
    return ErrorCode(context.send(request).error_code)


def test_a_new_cluster_names_only_features_that_are_served() -> None:
    """Clients use the protocols behind each feature: none is named that is not served."""
    image = ControllerContext().image
    assert image.cluster_id == CLUSTER_ID
    assert dict(image.features) == {
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def test_a_new_cluster_has_the_highest_level_of_each_feature() -> None:
    """The greatest of each supported range."""
    assert dict(several_features().image.features) == {
        "metadata.version": 30,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_levels_go_down_only_when_allowed() -> None:
    """upgrade_type 1 upgrades, 2 and 3 downgrade; 0 removes."""
    context = several_features()
    assert update(context, ("group.version", 0, 1)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(context, ("group.version", 0, 2)).error_code == ErrorCode.NONE
    assert "group.version" not in context.image.features
    assert update(context, ("group.version", 1, 1)).error_code == ErrorCode.NONE
    assert context.image.features["group.version"] == 1


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("no.such", 1, 1),
        ("group.version", 2, 1),
        ("metadata.version", 31, 1),
        ("metadata.version", 6, 3),
        ("metadata.version", 0, 3),
        ("metadata.version", 29, 2),
        ("group.version", -1, 2),
        ("no.such", 0, 2),
        ("transaction.version", 2, 2),
        ("group.version", 1, 0),
        ("group.version", 1, 4),
    ],
)
def test_refused_levels(name: str, level: int, kind: int) -> None:
    """INVALID_UPDATE_VERSION, with a reason, and none of the request's updates happen."""
    context = several_features()
    update(context, ("transaction.version", 1, 2))
    response = update(context, ("group.version", 0, 2), (name, level, kind))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message.startswith("The update failed for all features since")
    assert context.last_records == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (2, "Refusing to perform the requested downgrade because it might delete metadata"),
        (3, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_the_metadata_version_never_goes_down(kind: int, reason: str) -> None:
    """Neither safely, since metadata could be lost, nor unsafely, as Kafka words it."""
    response = update(ControllerContext(), ("metadata.version", 21, kind))
    assert f"Unsupported metadata.version downgrade from 30 to 21. {reason}" in (
        response.error_message
    )


def test_every_broker_must_support_a_level() -> None:
    """A broker that stops at transaction.version 1 keeps the cluster there."""
    context = several_features()
    update(context, ("transaction.version", 1, 2))
    register(context, {"group.version": (0, 1), "transaction.version": (0, 1)})
    response = update(context, ("transaction.version", 2, 1))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 1 only supports versions 0-1" in response.error_message


def test_a_broker_from_before_a_feature_keeps_it_off() -> None:
    """It names no range, and would not understand the level: Kafka's range is then 0 to 0."""
    context = several_features()
    update(context, ("transaction.version", 0, 2))
    assert context.image.transaction_version == 0
    assert register(context, {"group.version": (0, 1)}) == ErrorCode.NONE
    response = update(context, ("transaction.version", 2, 1))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 1 does not support this feature." in response.error_message


def test_a_broker_from_before_a_finalized_feature_is_refused() -> None:
    """And taken once the level went down to 0."""
    context = several_features()
    assert register(context, {"group.version": (0, 1)}) == ErrorCode.UNSUPPORTED_VERSION
    update(context, ("transaction.version", 0, 2))
    assert register(context, {"group.version": (0, 1)}) == ErrorCode.NONE


def test_an_old_cluster_is_at_level_0_until_it_is_upgraded() -> None:
    """Its metadata log says nothing of the feature; a controller of this release leads it now."""
    context = ControllerContext(supported_features={"metadata.version": (7, 30)})
    context.config = replace(context.config, supported_features=FEATURES)
    context.fail_over()
    assert context.image.transaction_version == 0
    assert update(context, ("transaction.version", 2, 1)).error_code == ErrorCode.NONE
    assert context.image.transaction_version == 2
    assert update(context, ("transaction.version", 1, 2)).error_code == ErrorCode.NONE
    assert context.image.transaction_version == 1


def test_old_versions_answer_per_feature() -> None:
    """v0 and v1 have results."""
    context = several_features()
    assert update(context, ("group.version", 0, 2)).error_code == ErrorCode.NONE
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1)]
    )
    response = context.send(request, api_version=0)
    assert [(r.feature, r.error_code) for r in response.results] == [("group.version", 0)]
    response = update(context, ("group.version", 1, 1), api_version=1)
    assert [r.feature for r in response.results] == ["group.version"]


def test_the_oldest_version_takes_nothing_down() -> None:
    """Its allow_downgrade is not looked at (Kafka 4.3.1): the missing upgrade_type is UPGRADE."""
    context = several_features()
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=True)
        ]
    )
    response = context.send(request, api_version=0)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "without setting the upgrade type" in (response.error_message or "")
    assert context.image.features["group.version"] == 1


def test_validate_only_records_nothing() -> None:
    """The answer is as it would be."""
    context = several_features()
    response = update(context, ("group.version", 0, 2), validate_only=True)
    assert response.error_code == ErrorCode.NONE
    assert context.image.features["group.version"] == 1
