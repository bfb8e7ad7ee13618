"""Fetch sessions of consumers (KIP-227): the partitions that each fetches, and what it was told of them.

    full fetch ──► begun, if there is room ──► resumed by each request with the next epoch ──► ended:
    by a full fetch that names it, without partitions, or evicted for another one

As in Kafka, a new session evicts one that is unused for 120 s, or else a smaller one that began more than
120 s ago. Without room a fetch is answered with session id 0, and the client sends full fetches.
"""

from collections.abc import Callable
from typing import Final

from sparklog.model import Instant, Micros
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData
from sparklog_server.replica.fetch_sessions import FIRST_EPOCH, UNUSED_US, PartKey, new_id

PARTS_MAX: Final = 100_000
"""How many partitions all sessions may have."""
_UNKNOWN: Final = -2
"""An offset that the consumer was not told."""


class SessionPart:
    """One partition of a session: what the consumer asked for last, and what it was told last."""

    __slots__ = ("asked", "sent_high_watermark", "sent_last_stable", "sent_log_start")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.sent_high_watermark = _UNKNOWN
        self.sent_last_stable = _UNKNOWN
        self.sent_log_start = _UNKNOWN

    def tell(self, data: PartitionData) -> bool:
        """Note what a response may say, and whether there is a reason to say it: records, other offsets
        than before, an error, a divergence, or another replica to read from. The end of an error is such a
        reason too.
        """
        is_changed = (
            data.high_watermark != self.sent_high_watermark
            or data.last_stable_offset != self.sent_last_stable
            or data.log_start_offset != self.sent_log_start
        )
        self.sent_high_watermark = _UNKNOWN if data.error_code else data.high_watermark
        self.sent_last_stable = data.last_stable_offset
        self.sent_log_start = data.log_start_offset
        return (
            is_changed
            or bool(data.records)
            or data.error_code != 0
            or data.diverging_epoch is not None
            or data.preferred_read_replica >= 0
        )


class ConsumerSession:
    """The session of one consumer with this broker. The next request must have `epoch`; `parts` are in the
    order in which they are read: those that gave records last are at the end, so that none starves.
    """

    __slots__ = ("began_us", "counted", "epoch", "id", "parts", "used_us", "uses_topic_ids")

    def __init__(
        self, session_id: int, parts: dict[PartKey, SessionPart], now: Instant, *, uses_topic_ids: bool
    ) -> None:
        self.id = session_id
        self.epoch = FIRST_EPOCH
        self.parts = parts
        self.uses_topic_ids = uses_topic_ids
        self.began_us: Micros = now.mono_us
        self.used_us: Micros = now.mono_us
        self.counted = len(parts)  # the parts that ConsumerSessions has counted

    def ask(self, key: PartKey, asked: FetchPartition) -> None:
        """Fetch a partition from now on, or from another position."""
        part = self.parts.get(key)
        if part is None:
            self.parts[key] = SessionPart(asked)
        else:
            part.asked = asked

    def tell(self, read: list[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
        """What is new to the consumer in what was `read` for `topics`, which are the same still."""
        topics, given = [], []
        parts = iter(self.parts.items())
        for topic in read:
            news = []
            for data, (key, part) in zip(topic.partitions, parts, strict=False):  # `parts` goes on
                if part.tell(data):
                    news.append(data)
                    if data.records:
                        given.append(key)
            if news:
                topic.partitions = news
                topics.append(topic)
        for key in given:
            self.parts[key] = self.parts.pop(key)
        return topics

    def topics(self) -> list[FetchTopic]:
        """All partitions, in their order, as a full fetch names them: a topic may occur several times."""
        topics: list[FetchTopic] = []
        latest = None
        for (topic, _), part in self.parts.items():
            if topic != latest:
                latest = topic
                topics.append(
                    FetchTopic(topic=topic) if isinstance(topic, str) else FetchTopic(topic_id=topic)
                )
            topics[-1].partitions.append(part.asked)
        return topics


class ConsumerSessions:
    """The sessions of all consumers: at most `slots`, with at most PARTS_MAX partitions together."""

    def __init__(self, slots: int, entropy: Callable[[int], bytes]) -> None:
        self.slots = slots
        self._entropy = entropy
        self._by_id: dict[int, ConsumerSession] = {}  # the least recently used one first
        self._part_count = 0

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def part_count(self) -> int:
        """The partitions of all sessions."""
        return self._part_count

    def find(self, session_id: int) -> ConsumerSession | None:
        """The session of that id."""
        return self._by_id.get(session_id)

    def make_room(self, size: int, now: Instant) -> bool:
        """Whether a new session may have `size` partitions; evicts others for it."""
        if not 0 < size <= PARTS_MAX or not self.slots:
            return False
        while len(self._by_id) >= self.slots or self._part_count + size > PARTS_MAX:
            evicted = self._evictable_for(size, now)
            if evicted is None:
                return False
            self.end(evicted.id)
        return True

    def part(self, asked: FetchPartition, data: PartitionData) -> SessionPart:
        """A part of a new session, which was told that."""
        part = SessionPart(asked)
        part.tell(data)
        return part

    def begin(
        self, parts: dict[PartKey, SessionPart], now: Instant, *, uses_topic_ids: bool
    ) -> ConsumerSession:
        """A new session, for which `make_room` has made room."""
        session = ConsumerSession(
            new_id(self._entropy, self._by_id), parts, now, uses_topic_ids=uses_topic_ids
        )
        self._by_id[session.id] = session
        self._part_count += session.counted
        return session

    def resumed(self, session: ConsumerSession, now: Instant) -> bool:
        """The next request of a session has changed its partitions; False if they are too many now, which
        ends the session.
        """
        del self._by_id[session.id]
        size = len(session.parts)
        self._part_count += size - session.counted
        if self._part_count > PARTS_MAX:
            self._part_count -= size
            return False
        self._by_id[session.id] = session  # at the end: the most recently used one
        session.used_us, session.counted = now.mono_us, size
        return True

    def end(self, session_id: int) -> None:
        """Forget a session, if it exists."""
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self._part_count -= session.counted

    def _evictable_for(self, size: int, now: Instant) -> ConsumerSession | None:
        """The session that gives way to one of `size` partitions."""
        before_us = now.mono_us - UNUSED_US
        oldest = next(iter(self._by_id.values()), None)
        if oldest is None or oldest.used_us < before_us:
            return oldest
        settled = (one for one in self._by_id.values() if one.began_us < before_us and one.counted < size)
        return min(settled, key=lambda one: (one.counted, one.id), default=None)
