"""Fetch sessions of followers (KIP-227): what each follower fetches, and which of it has news.

    asked ──► clean ── appended, watermark moved, role ended ──► marked ──► in the next response
      ▲                                                                        │
      └──── awaiting, after records: marked again once it is asked anew ◄──────┘

A partition marks itself in the sessions that have it, so that no work is done for partitions that did not
change. A parked response is built from the marked ones.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from sparklog.model import Instant, Micros, NodeId, Offset
from sparklog.wire.messages.fetch import EpochEndOffset as DivergingEpoch
from sparklog.wire.messages.fetch import FetchPartition, PartitionData
from sparklog.wire.schema import INT64_MAX
from sparklog_server.replica.fetch_sessions import FIRST_EPOCH, UNUSED_US, PartKey, new_id
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.progress import NEVER, FollowerProgress

if TYPE_CHECKING:
    from sparklog_server.replica.throttle import Throttle

SESSIONS_PER_BROKER_MAX: Final = 64
"""How many sessions one follower may have: Kafka's brokers have one for each of `num.replica.fetchers`."""
PARTS_MAX: Final = 100_000
"""How many partitions one session may name."""
UNKNOWN: Final = Offset(-2)
"""An offset that the follower was not told yet."""


class Parked(Protocol):
    """The request of a session that waits for news."""

    def released(self) -> None:
        """There is news: the response leaves in this turn."""


class StandingPart:
    """One partition of a session, as its follower asked for it last.

    `partition` is set while it is told of changes there. `error` and `diverging` are for the next
    response. `is_awaiting`: records were sent, and the follower has not asked for the next ones.
    """

    __slots__ = (
        "asked",
        "diverging",
        "error",
        "is_awaiting",
        "key",
        "partition",
        "progress",
        "session",
        "told_high_watermark",
        "told_log_start",
    )

    def __init__(self, session: "ReplicaSession", key: PartKey, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.error = 0
        self.diverging: DivergingEpoch | None = None
        self.is_awaiting = False
        self.partition: Partition | None = None
        self.progress: FollowerProgress | None = None
        self.told_high_watermark: int = UNKNOWN
        self.told_log_start: int = UNKNOWN

    def stand(self, partition: Partition, progress: FollowerProgress) -> None:
        """Be told of the changes of `partition` from now on."""
        if self.partition is not partition:
            self.leave()
            self.partition = partition
            partition.standing[self] = None
        self.progress = progress

    def leave(self) -> None:
        """Be told of nothing more."""
        if self.partition is not None:
            self.partition.standing.pop(self, None)
            self.partition = None

    @property
    def throttled_room(self) -> int | None:
        """The bytes that the throttle leaves the follower now: 0 while its records are held back, and its
        session is told once there is room; None if it is not throttled. A replica is not for which the high
        watermark waits, that is one in sync, or about to be.
        """
        session, partition = self.session, self.partition
        throttle = session.throttle
        if (
            throttle is None
            or partition is None
            or self not in session.outside
            or partition.is_awaited(session.node, throttle.now)
        ):
            return None
        room = throttle.room(partition.topic_partition)
        if room == 0:
            throttle.waiting[session] = None
        return room

    @property
    def has_news(self) -> bool:
        """Whether the follower is told at once: of records, of an error or a divergence, of a high watermark
        that its readers wait for, or of a log start that a deletion waits for.
        """
        partition = self.partition
        if partition is None or self.error or self.diverging is not None:
            return True
        asked, log = self.asked, partition.log
        return (
            (
                asked.fetch_offset < log.log_end_offset
                and not self.is_awaiting
                and (self.session.throttle is None or self.throttled_room != 0)
            )
            or asked.fetch_offset < log.log_start_offset
            or max(asked.high_watermark, self.told_high_watermark) < partition.high_watermark
            or self.told_log_start not in (UNKNOWN, log.log_start_offset)
        )

    def tell(self, data: PartitionData) -> bool:
        """Note what a response may say of this part, and whether there is a reason to say it. A part that
        has more to say, or an error until the follower asks otherwise, stays marked.
        """
        is_broken = bool(data.error_code) or data.diverging_epoch is not None
        is_changed = (
            data.high_watermark != self.told_high_watermark or data.log_start_offset != self.told_log_start
        )
        self.told_high_watermark, self.told_log_start = data.high_watermark, data.log_start_offset
        if is_broken:
            return True
        self.is_awaiting = self.is_awaiting or bool(data.records)
        session = self.session
        # One that is held back stays marked: it is looked at again by time, and is not caught up.
        may_be_held = session.throttle is not None and self in session.outside
        if self.is_awaiting or not (may_be_held or self.has_news):
            session.marked.pop(self, None)
        return is_changed or bool(data.records)

    def appended(self) -> None:
        session = self.session
        if self.is_awaiting:
            return
        if self not in session.marked:
            session.marked[self] = None
            if self.progress is not None:
                self.progress.had_everything(session.fetched_us)
        if session.parked is not None and (session.throttle is None or self.throttled_room != 0):
            session.parked.released()

    def high_watermark_moved(self) -> None:
        session = self.session
        session.marked[self] = None
        # Version 18: a follower that serves readers tells its high watermark, and is told of a newer one at
        # once.
        if (
            session.parked is not None
            and self.partition is not None
            and (self.asked.high_watermark < self.partition.high_watermark)
        ):
            session.parked.released()

    def log_start_moved(self) -> None:
        self.session.marked[self] = None
        if self.session.parked is not None:
            self.session.parked.released()

    def in_sync_changed(self) -> None:
        leader = None if self.partition is None else self.partition.leader
        if leader is None:
            return
        session = self.session
        # Its request may never name this part again: the log is idle, and the follower was only fenced.
        if session.node not in leader.isr.committed:
            session.outside[self] = None
        elif self in session.outside:
            del session.outside[self]
            if session.throttle is not None:
                session.look_again()  # it may have been held back

    def role_ended(self) -> None:
        self.partition = None
        self.is_awaiting = False
        self.told_high_watermark = self.told_log_start = UNKNOWN
        self.session.marked[self] = None
        if self.session.parked is not None:
            self.session.parked.released()


class ReplicaSession:
    """The session of one fetcher of a follower. `id` 0 is that of a request without a session; `marked` are
    the parts with news, those that waited longest first, `outside` those for which the follower is not in the
    ISR; `fetched_us` is the time of its last request, `throttle` the one that may hold records back.
    """

    __slots__ = (
        "epoch",
        "fetched_us",
        "id",
        "marked",
        "node",
        "outside",
        "parked",
        "parts",
        "throttle",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, node: NodeId, *, uses_topic_ids: bool, throttle: "Throttle | None" = None
    ) -> None:
        self.throttle = throttle
        self.id = session_id
        self.node = node
        self.uses_topic_ids = uses_topic_ids
        self.epoch = FIRST_EPOCH
        self.parts: dict[PartKey, StandingPart] = {}
        self.marked: dict[StandingPart, None] = {}
        self.outside: dict[StandingPart, None] = {}
        self.parked: Parked | None = None
        self.fetched_us: Micros = NEVER

    def ask(self, key: PartKey, asked: FetchPartition) -> StandingPart:
        """The part for what a request names; new, or with its new position."""
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = StandingPart(self, key, asked)
        part.asked = asked
        part.is_awaiting = False
        if asked.high_watermark != INT64_MAX:
            part.told_high_watermark = UNKNOWN  # the follower says what it has
        if asked.log_start_offset < part.told_log_start:
            part.told_log_start = UNKNOWN  # it has dropped the response that told it
        part.error, part.diverging = 0, None
        return part

    def forget(self, key: PartKey) -> None:
        """The follower fetches a partition no more."""
        part = self.parts.pop(key, None)
        if part is not None:
            part.leave()
            self.marked.pop(part, None)
            self.outside.pop(part, None)

    def look_again(self) -> None:
        """Records that were held back may be sent now."""
        if self.parked is not None:
            self.parked.released()

    def close(self) -> None:
        """End the session."""
        for part in self.parts.values():
            part.leave()
        self.parts.clear()
        self.marked.clear()
        self.outside.clear()
        self.parked = None


class ReplicaSessions:
    """The sessions of all followers, at most `SESSIONS_PER_BROKER_MAX` for each."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self.throttle: Throttle | None = None
        self._by_id: dict[int, ReplicaSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, session_id: int) -> ReplicaSession | None:
        """The session of that id."""
        return self._by_id.get(session_id)

    def throttle_by(self, throttle: "Throttle | None") -> None:
        """Let this throttle hold records back from now on, or none."""
        self.throttle = throttle
        for session in self._by_id.values():
            session.throttle = throttle
            for part in session.outside:
                session.marked[part] = None
            session.look_again()

    def begin(self, node: NodeId, now: Instant, *, uses_topic_ids: bool) -> ReplicaSession:
        """A new session; those of the follower that it no longer uses are closed, and the least recently used
        one if it has too many.
        """
        own = [one for one in self._by_id.values() if one.node == node]
        for one in own:
            if one.fetched_us + UNUSED_US < now.mono_us:
                self.end(one.id)
        if len(own) >= SESSIONS_PER_BROKER_MAX:
            self.end(min(own, key=lambda one: (one.fetched_us, one.id)).id)
        session_id = new_id(self._entropy, self._by_id)
        session = self._by_id[session_id] = ReplicaSession(
            session_id, node, uses_topic_ids=uses_topic_ids, throttle=self.throttle
        )
        return session

    def end(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.close()
