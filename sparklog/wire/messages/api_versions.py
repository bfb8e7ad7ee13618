"""The APIs and versions that a broker supports: the first request of every connection (KIP-35, KIP-511,
KIP-584).

The reply header is always v0. A broker that does not support the request's version answers in v0 with
UNSUPPORTED_VERSION and its own range for ApiVersions, so the client can retry. From v3 on the client sends
its software name and version; features are tagged fields.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int16, Int32, Int64, Message, Str, Versions, since, tagged


class ApiVersionsRequest(Message):
    versions: ClassVar = Versions(0, 4, flexible=3)

    client_software_name: Annotated[Str, since(3)] = ""
    client_software_version: Annotated[Str, since(3)] = ""


class ApiVersion(Message):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    name: Str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message):
    name: Str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    versions: ClassVar = Versions(0, 4, flexible=3)

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], since(3), tagged(0)] = []
    finalized_features_epoch: Annotated[Int64, since(3), tagged(1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], since(3), tagged(2)] = []
    zk_migration_ready: Annotated[Bool, since(3), tagged(3)] = False
