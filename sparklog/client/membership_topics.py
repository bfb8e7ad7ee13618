"""The topics of a classic group: its members' subscriptions, and the topics of a Metadata reply."""

import re
from collections.abc import Set

from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


def request_for(topics: Set[str] | None) -> MetadataRequest:
    """A request for these topics, None for all; it creates none."""
    named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def partition_counts(reply: MetadataResponse) -> dict[str, int]:
    """The number of partitions of each topic that exists."""
    return {topic.name: len(topic.partitions) for topic in reply.topics if topic.name and topic.partitions}


def matching(pattern: str, reply: MetadataResponse, *, excludes_internal: bool) -> tuple[str, ...]:
    """The existing topics whose whole name matches a regular expression, in order."""
    hidden = {topic.name for topic in reply.topics if topic.is_internal and excludes_internal}
    matches = re.compile(pattern).fullmatch
    return tuple(sorted(name for name in partition_counts(reply) if name not in hidden and matches(name)))
