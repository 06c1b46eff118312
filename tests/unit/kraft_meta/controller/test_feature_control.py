"""UpdateFeatures, and what a new cluster starts with."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.quorum import (
    BrokerRegistrationRequest,
    Feature,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.unit.kraft_meta.controller.context import CLUSTER_ID, ControllerContext

# A version of ours that serves more than today's.
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


def test_a_new_cluster_names_only_features_that_are_served() -> None:
    """Kafka 4.3's metadata version: clients would use the protocols behind any other feature."""
    image = ControllerContext().image
    assert image.cluster_id == CLUSTER_ID
    assert dict(image.features) == {"metadata.version": 30}


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
        ("group.version", 1, 0),
        ("group.version", 1, 4),
    ],
)
def test_refused_levels(name: str, level: int, kind: int) -> None:
    """INVALID_UPDATE_VERSION, with a reason, and none of the request's updates happen."""
    context = several_features()
    response = update(context, ("transaction.version", 1, 2), (name, level, kind))
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
    feature = Feature(name="transaction.version", max_supported_version=1)
    context.send(BrokerRegistrationRequest(broker_id=1, cluster_id=CLUSTER_ID, features=[feature]))
    response = update(context, ("transaction.version", 2, 1))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Broker 1 only supports versions 0-1" in response.error_message


def test_old_versions_answer_per_feature_and_allow_downgrades_by_flag() -> None:
    """v0 has allow_downgrade and results; v1 still has results."""
    context = several_features()
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=True)
        ]
    )
    response = context.send(request, api_version=0)
    assert [(r.feature, r.error_code) for r in response.results] == [("group.version", 0)]
    response = update(context, ("group.version", 1, 1), api_version=1)
    assert [r.feature for r in response.results] == ["group.version"]


def test_validate_only_records_nothing() -> None:
    """The answer is as it would be."""
    context = several_features()
    response = update(context, ("group.version", 0, 2), validate_only=True)
    assert response.error_code == ErrorCode.NONE
    assert context.image.features["group.version"] == 1
