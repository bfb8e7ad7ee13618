"""How many topics a request names, known before it is decoded: what names more than a cluster can have costs nothing."""

from typing import Final

from sparklog.wire.api_keys import API_BY_KEY

BEGIN_WITH_TOPICS: Final = frozenset((3, 19, 20, 32, 33, 35, 37, 44, 48, 49, 50, 55, 61, 74, 75))
"""Metadata, CreateTopics and others of administration: in every version the first field is the array of topics, or of resources."""

_VARINT_BYTES_MAX = 5


def refusal_of_many(api_key: int, version: int, body: memoryview, topics_max: int) -> str:
    """Why this request is not to be decoded; empty if it may be."""
    if api_key not in BEGIN_WITH_TOPICS or (count := topic_count(api_key, version, body)) <= topics_max:
        return ""
    return f"a request of API {api_key} that names {count} topics, where sparklog.partitions.max is {topics_max}"


def topic_count(api_key: int, version: int, body: memoryview) -> int:
    """The length of the array that a request of `BEGIN_WITH_TOPICS` begins with; 0 for null and for what is no length."""
    if version < API_BY_KEY[api_key].flexible:
        return max(int.from_bytes(body[:4], "big", signed=True), 0) if len(body) >= 4 else 0
    length = 0
    for index, byte in enumerate(bytes(body[:_VARINT_BYTES_MAX])):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return max(length - 1, 0)
    return 0
