"""The finalized levels of features: upgraded and downgraded within the levels that every registered broker
and controller supports (KIP-584, KIP-1022).
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.features import ELR_VERSION, KRAFT_VERSION, SUPPORTED
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import FeatureLevelRecord, NoOpRecord
from sparklog_server.outcome import Outcome, Refused, cut

from .min_isr import enabling_records
from .quorum_port import QuorumPort

_UPGRADE = 1
_KNOWN_TYPES = (1, 2, 3)
"""Upgrade, safe downgrade, unsafe downgrade."""

_NOT_SUPPORTED = (0, 0)


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    settings: BrokerSettings,
    quorum: QuorumPort,
    now: Instant,
) -> Outcome[Message, UpdateFeaturesResponse]:
    """Set the levels atomically; `results` is for requests before version 2."""
    updates = {update.feature: update for update in request.feature_updates}
    try:
        records: list[Message] = []
        if ELR_VERSION in updates and updates[ELR_VERSION].max_version_level > 0:
            records += enabling_records(image, settings.topics.min_insync_replicas)
        for update in updates.values():
            _check(image, update, settings.node_id, quorum)
            if update.feature != KRAFT_VERSION:
                records.append(
                    FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
                )
        # Last, since raft appends its records at once.
        if (raised := updates.get(KRAFT_VERSION)) is not None:
            is_only_validated = request.validate_only
            records += _kraft_version_upgraded(quorum, raised, is_only_validated=is_only_validated, now=now)
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


def _check(image: MetadataImage, update: FeatureUpdateKey, node_id: int, quorum: QuorumPort) -> None:
    """Refuse a level that a node does not support, or that the type of the update does not allow."""
    level, present = update.max_version_level, image.features.get(update.feature, 0)
    if update.feature == KRAFT_VERSION:
        present = quorum.kraft_version
    # Version 0 of the request has a flag instead: a downgrade that it allows is a safe one.
    kind = 2 if update.allow_downgrade else update.upgrade_type
    reason = None
    if kind not in _KNOWN_TYPES:
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    else:
        reason = _why_not_supported(image, update.feature, level, node_id, quorum)
    if reason is not None:
        raise _invalid(update, reason)
    if level < present and kind == _UPGRADE:
        reason = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."  # noqa: E501
    elif level < present and update.feature == KRAFT_VERSION:
        reason = "Can't downgrade the version of this feature."
    elif level > present and kind != _UPGRADE:
        reason = "Can't downgrade to a newer version."
    if reason is not None:
        raise _invalid(update, reason)


def _kraft_version_upgraded(
    quorum: QuorumPort, update: FeatureUpdateKey, *, is_only_validated: bool, now: Instant
) -> list[Message]:
    """Let raft append its records; the reply waits for the returned record behind it."""
    level = update.max_version_level
    if level == quorum.kraft_version:
        return []
    reason = quorum.upgrade_kraft_version(level, is_only_validated=is_only_validated, now=now)
    if reason is not None:
        raise _invalid(update, reason)
    return [NoOpRecord()]


def _invalid(update: FeatureUpdateKey, reason: str) -> Refused:
    message = f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, message)


def _why_not_supported(
    image: MetadataImage, feature: str, level: int, node_id: int, quorum: QuorumPort
) -> str | None:
    """The first node that does not support that level of the feature, or a voter that has not registered."""
    own = SUPPORTED.get(feature, _NOT_SUPPORTED)
    nodes = [(f"Local controller {node_id}", own)]
    nodes += [
        (f"Broker {broker.node_id}", broker.features.get(feature, _NOT_SUPPORTED))
        for broker in image.brokers.values()
    ]
    nodes += [
        (f"Controller {node}", controller.features.get(feature, _NOT_SUPPORTED))
        for node, controller in image.controllers.items()
        if node != node_id
    ]
    for name, (lowest, highest) in nodes:
        if not lowest <= level <= highest:
            versions = str(lowest) if lowest == highest else f"{lowest}-{highest}"
            return (
                f"{name} does not support this feature."
                if highest == 0
                else f"{name} only supports versions {versions}"
            )
    for voter in quorum.voter_ids:
        if voter != node_id and voter not in image.controllers:
            return f"controller {voter} has not registered, and may not support this feature"
    return None
