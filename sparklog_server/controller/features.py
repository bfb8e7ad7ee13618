"""The finalized levels of features: upgraded and downgraded within the levels that every node supports
(KIP-584, KIP-1022).
"""

from sparklog.errors import ErrorCode
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.features import SUPPORTED
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import FeatureLevelRecord
from sparklog_server.outcome import Outcome, Refused, cut

_UPGRADE = 1
_KNOWN_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade."""

_NOT_SUPPORTED = (0, 0)


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, node_id: int
) -> Outcome[Message, UpdateFeaturesResponse]:
    """Set the levels atomically; `results` is for requests before version 2."""
    updates = {update.feature: update for update in request.feature_updates}
    try:
        records = [record for update in updates.values() for record in _updated(image, update, node_id)]
    except Refused as refusal:
        message = cut(
            f"The update failed for all features since the following feature had an error: {refusal.message}"
        )
        return Outcome((), UpdateFeaturesResponse(error_code=refusal.code, error_message=message))
    results = [UpdatableFeatureResult(feature=name, error_message=None) for name in updates]
    return Outcome(
        () if request.validate_only else tuple(records),
        UpdateFeaturesResponse(error_message=None, results=results),
    )


def _updated(image: MetadataImage, update: FeatureUpdateKey, node_id: int) -> list[Message]:
    """The record of one feature; raises Refused with INVALID_UPDATE_VERSION."""
    level, present = update.max_version_level, image.features.get(update.feature, 0)
    # Version 0 of the request has a flag instead: a downgrade that it allows is a safe one.
    kind = 2 if update.allow_downgrade else update.upgrade_type
    reason = None
    if kind not in _KNOWN_TYPES:
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        reason = _why_not_supported(image, update.feature, level, node_id)
    if reason is None and level < present and kind == _UPGRADE:
        reason = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."  # noqa: E501
    elif reason is None and level > present and kind != _UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason is not None:
        message = f"Invalid update version {level} for feature {update.feature}. {reason}"
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, message)
    return [FeatureLevelRecord(name=update.feature, feature_level=level)]


def _why_not_supported(image: MetadataImage, feature: str, level: int, node_id: int) -> str | None:
    """The first node that does not support that level of the feature."""
    nodes = [(f"Local controller {node_id}", SUPPORTED.get(feature, _NOT_SUPPORTED))]
    nodes += [
        (f"Broker {broker.node_id}", broker.features.get(feature, _NOT_SUPPORTED))
        for broker in image.brokers.values()
    ]
    for name, (lowest, highest) in nodes:
        if not lowest <= level <= highest:
            versions = str(lowest) if lowest == highest else f"{lowest}-{highest}"
            return (
                f"{name} does not support this feature."
                if highest == 0
                else f"{name} only supports versions {versions}"
            )
    return None
