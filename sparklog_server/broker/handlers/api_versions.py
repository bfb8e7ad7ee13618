"""ApiVersions: the APIs and versions of this broker, and the features of its cluster (KIP-35, KIP-511,
KIP-584).
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.api_keys import API_BY_KEY, API_VERSIONS
from sparklog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from sparklog_server.broker.session import SOFTWARE_CHARS_MAX, Call, Parked
from sparklog_server.metadata.features import KRAFT_VERSION, SUPPORTED

if TYPE_CHECKING:
    from sparklog_server.broker.ports import ConnectionPort


_SOFTWARE_SINCE = 3
_ZERO_MINIMUM_SINCE = 4  # earlier clients reject a supported feature whose minimum is 0 (KAFKA-17011)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

ADVERTISED_FROM = {0: 0, 11: 0}
"""APIs advertised from a lower version than is served: librdkafka up to 2.11.0 takes Produce 0 as the sign
that codecs work (KAFKA-18659).
"""


def api_versions(
    context: "ConnectionPort", call: Call, request: ApiVersionsRequest, now: Instant
) -> ApiVersionsResponse | Parked:
    """The version ranges of the APIs that a listener of clients serves; INVALID_REQUEST for a client whose
    software name or version is invalid.
    """
    return versions_of(context.newest_served, context, call, request, now)


def versions_of(
    newest: Mapping[int, int],
    context: "ConnectionPort",
    call: Call,
    request: ApiVersionsRequest,
    now: Instant,
) -> ApiVersionsResponse | Parked:
    """The response of a listener that serves the APIs of `newest`."""
    authentication = call.session.authentication
    if authentication is not None and authentication.may_continue:
        from sparklog_server.broker.handlers.sasl import refuse  # only a node with SASL has it

        illegal = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        return refuse(context, call, illegal, authentication.unexpected(call.api_key), now)
    names = (request.client_software_name, request.client_software_version)
    if call.version >= _SOFTWARE_SINCE:
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.session.software = names[0][:SOFTWARE_CHARS_MAX], names[1][:SOFTWARE_CHARS_MAX]
    if authentication is not None:
        authentication.versions_answered()
    supported = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in SUPPORTED.items()
        if low > 0 or call.version >= _ZERO_MINIMUM_SINCE
    ]
    levels = {**context.image.features}
    if kraft_version := context.quorum.kraft_version:
        levels[KRAFT_VERSION] = kraft_version  # a control record, so not in the image
    finalized = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
    ]
    return ApiVersionsResponse(
        api_keys=served_versions(newest),
        supported_features=supported,
        finalized_features_epoch=context.image.offset,
        finalized_features=finalized,
    )


def of_unsupported_version() -> ApiVersionsResponse:
    """The response, in version 0, to an unsupported version of ApiVersions: the supported ones (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=served_versions({API_VERSIONS: API_BY_KEY[API_VERSIONS].until}),
    )


def served_versions(newest: Mapping[int, int]) -> list[ApiVersion]:
    """The rows of the response: key, lowest and highest version."""
    return [
        ApiVersion(
            api_key=key, min_version=ADVERTISED_FROM.get(key, API_BY_KEY[key].since), max_version=version
        )
        for key, version in newest.items()
    ]
