"""Decodes a frame into its request and finds the handler. A request that is not served is refused by its
header, before it is decoded.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.errors import DecodeError
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.codec import decode_request
from sparklog.wire.header import RequestHeader, UnsupportedVersion, decode_request_header
from sparklog.wire.schema import Message
from sparklog_server.broker.context import Handler, Handlers
from sparklog_server.broker.dispatch import import_handler
from sparklog_server.config.settings import BrokerSettings

BEGIN_WITH_TOPICS: Final = frozenset(
    (3, 19, 20, 30, 31, 32, 33, 35, 37, 41, 44, 48, 49, 50, 51, 55, 61, 74, 75)
)
"""Metadata, CreateTopics and others of administration: in every version the first field is the array of
topics, or of resources.
"""

_PRODUCE: Final = 0
_VARINT_BYTES_MAX: Final = 5


class NotServed(Exception):
    """Raised with the reason for which the session is to be closed."""


def read_request(
    frame: memoryview,
    handlers: Handlers,
    newest: Mapping[int, int],
    settings: BrokerSettings,
) -> tuple[RequestHeader, Handler, Message]:
    """The request in a frame and its handler; `newest` has the APIs of the listener, each with its newest
    served version. Raises NotServed or UnsupportedVersion.
    """
    try:
        header, body = decode_request_header(frame)
        api_key = header.api_key
        entry = handlers.get(api_key) or import_handler(handlers, api_key) if api_key in newest else None
        if entry is None:
            raise NotServed(f"API {api_key} is not served on this listener")
        if header.api_version > newest[api_key]:
            raise UnsupportedVersion(header)
        if api_key != _PRODUCE:
            if len(frame) > settings.connections.sparklog_frame_other_max_bytes:
                raise NotServed(f"a request of API {api_key} with {len(frame)} bytes")
            if (
                api_key in BEGIN_WITH_TOPICS
                and (count := topic_count(api_key, header.api_version, body))
                > settings.sparklog_partitions_max
            ):
                named = f"a request of API {api_key} that names {count} topics"
                raise NotServed(
                    f"{named}, where sparklog.partitions.max is {settings.sparklog_partitions_max}"
                )
        handler, request_class = entry
        return header, handler, decode_request(request_class, header.api_version, body)
    except DecodeError as error:
        raise NotServed(f"undecodable request: {error}") from None
    except (ImportError, OSError) as error:  # the installation was replaced while the broker runs
        raise NotServed(f"the handler of API {api_key} cannot be imported: {error}") from None


def topic_count(api_key: int, version: int, body: memoryview) -> int:
    """The length of the array that a request of `BEGIN_WITH_TOPICS` begins with; 0 for null and for an
    invalid length.
    """
    if version < API_BY_KEY[api_key].flexible:
        return max(int.from_bytes(body[:4], "big", signed=True), 0) if len(body) >= 4 else 0
    length = 0
    for index, byte in enumerate(bytes(body[:_VARINT_BYTES_MAX])):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return max(length - 1, 0)
    return 0
