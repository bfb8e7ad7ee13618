"""The topics of an offset commit: each refused partition gets its error in its place of the response."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog_server.broker.session import InSteps
from sparklog_server.metadata.image import MetadataImage


class _Topic(Protocol):
    """A topic of a request or a response."""

    name: str
    partitions: list[Any]


Asked = TypeVar("Asked", bound=_Topic)
Told = TypeVar("Told", bound=_Topic)


class CommittedTopics(Generic[Asked, Told]):
    """Topics by their place in the request; invariant: each is in `accepted`, in `refused`, or partly
    in both.
    """

    __slots__ = ("_count", "accepted", "refused")

    def __init__(self) -> None:
        self._count = 0
        self.accepted: dict[int, Asked] = {}
        self.refused: dict[int, Told] = {}

    def sort_out(
        self,
        now: Instant,
        image: MetadataImage,
        topics: Sequence[Asked],
        *,
        check: Callable[[Asked], ErrorCode],
        keep: Callable[[Asked, list[Any]], Asked],
        refuse: Callable[[Asked, list[tuple[int, ErrorCode]]], Told],
    ) -> InSteps[Instant]:
        """Accept or refuse the topics, in steps; returns the time of the last one.

        `keep` returns the topic with fewer partitions, `refuse` the response for the others, given as
        (index, error).
        """
        self._count = len(topics)
        for position, topic in enumerate(topics):
            now = yield
            code = check(topic)
            known = range(0 if code else len(image.topics_by_name[topic.name].partitions))
            kept = [part for part in topic.partitions if part.partition_index in known] if known else []
            if kept and len(kept) == len(topic.partitions):
                self.accepted[position] = topic
                continue
            if kept:
                self.accepted[position] = keep(topic, kept)
            now = yield  # one topic may have all partitions of the request
            error = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            gone = [
                (part.partition_index, error)
                for part in topic.partitions
                if part.partition_index not in known
            ]
            now = yield
            self.refused[position] = refuse(topic, gone)
        return now

    def answer(self, answered: Sequence[Told]) -> list[Told]:
        """The whole response, from that for the accepted topics."""
        topics = dict(self.refused)
        for position, told in zip(self.accepted, answered, strict=True):
            if position in topics:
                topics[position].partitions += told.partitions
            else:
                topics[position] = told
        return [topics[position] for position in range(self._count)]
