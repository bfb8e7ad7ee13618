"""Raises or lowers the finalized level of features such as metadata.version; v1 can only validate."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    since,
    until,
)


class FeatureUpdateKey(Message):
    feature: Str = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, until(0), essential] = False
    upgrade_type: Annotated[Int8, since(1), essential] = 1


class UpdateFeaturesRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[Bool, since(1), essential] = False


class UpdatableFeatureResult(Message):
    feature: Str = ""
    error_code: Int16 = 0
    error_message: NullableStr = ""


class UpdateFeaturesResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
    results: Annotated[list[UpdatableFeatureResult], until(1)] = []
