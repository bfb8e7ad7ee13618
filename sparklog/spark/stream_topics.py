"""The topics and offsets that a running stream knows, and when it refreshes them.

An idle stream fetches metadata every 0.4 s and log end offsets every 2 s, in case the Fetch that waits at
each leader missed a change. A stream with a backlog fetches both before every micro-batch. A run with
AvailableNow fetches them once.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from sparklog.client.clock import now_us
from sparklog.client.failures import UnknownTopic
from sparklog.errors import BrokerError
from sparklog.model import ZERO_UUID, Micros, Offset, TopicPartition, Uuid
from sparklog.spark import plan
from sparklog.spark.offsets import PartitionOffsets, StreamOffset
from sparklog.spark.options import Options
from sparklog.spark.plan import Loss
from sparklog.spark.sizes import Observed, SizeEstimates
from sparklog.spark.topics import SubscribedTopics, TopicNotVisible, TopicsNow, is_out_of_sight

LOOK_EVERY_US: Final = 400_000
LOOK_SHARE: Final = 20
"""The interval between slow refreshes (thousands of topics), as a multiple of their duration."""
LOOK_LIGHT_US: Final = 20_000
"""A refresh that took no longer than this runs before every micro-batch."""
ENDS_EVERY_US: Final = 2_000_000
SIZES_EVERY_US: Final = 10_000_000
RACES_MAX: Final = 5
"""The number of retries if topics are deleted between two requests, before that is an error."""
NAMED_MAX: Final = 10
"""The number of topics that a message names."""


class StreamTopics:
    """The partitions of a stream, their log end offsets and topic ids, as of the last `refresh`."""

    def __init__(self, options: Options, pause_s: Callable[[float], None]) -> None:
        self.topics = SubscribedTopics(options)
        self.ends: PartitionOffsets = {}
        self.ids: Mapping[str, Uuid] = {}
        self.is_frozen = False
        self._options = options
        self._pause_s = pause_s
        self._now: TopicsNow | None = None
        self._look_due = self._ends_due = self._sizes_due = Micros(0)
        self._look_took = 0
        self._known_ends: dict[tuple[Uuid | None, TopicPartition], Offset] = {}
        """By topic id, because a topic may be recreated under the same name."""
        self._log_starts: dict[TopicPartition, Offset] = {}
        self._log_starts_until = Micros(0)
        self._sizes = SizeEstimates()
        self._were_deleted: dict[tuple[str, Uuid], bool] = {}
        """The answers about topics that the last look left out, by name and id."""
        self._reported_hidden: Set[str] = frozenset()

    def freeze(self) -> None:
        """Fixes the topics and their ends at their current values."""
        self._list(is_look_due=True)
        self.is_frozen = True

    def refresh(self, current: StreamOffset, *, is_known: bool) -> None:
        """Refreshes all state, or, with `is_known`, only what is outdated.

        Raises UnknownTopic for a subscribed topic that has never existed.
        """
        is_first = self._now is None
        if not self.is_frozen:
            now = now_us()
            is_look_due = now >= self._look_due or (not is_known and self._look_took <= LOOK_LIGHT_US)
            if not is_known or is_look_due or now >= self._ends_due:
                self._list(is_look_due=is_look_due, may_keep_ends=is_known and now < self._ends_due)
        for _ in range(self._options.fetch_retries):
            if not any(self._is_same(current, tp) for tp in plan.behind(current, self.ends)):
                break
            # A new leader may not know its high watermark yet; only an end that stays below is a loss.
            self._pause_s(self._options.fetch_retry_ms / 1000)
            self._list(is_look_due=True)
        if is_first:
            self._require_named(current)

    def losses(self, current: StreamOffset) -> list[Loss]:
        """The losses among offsets that were not read yet."""
        doubtful = [
            tp
            for tp, reached in sorted(current.reached.items())
            if tp in self.ends and (self.ends[tp] != reached or not self._is_same(current, tp))
        ]
        self._log_starts = self.earliest_there(doubtful)
        self._log_starts_until = Micros(now_us() + LOOK_EVERY_US)
        there = {tp: end for tp, end in self.ends.items() if tp not in doubtful or tp in self._log_starts}
        deleted = self._deleted((tp.topic for tp in current.reached if tp not in there), current)
        known = {
            tp: self._known_ends.get((current.ids.get(tp.topic), tp), reached)
            for tp, reached in current.reached.items()
        }
        return plan.losses(
            current,
            latest=there,
            log_start=self._log_starts,
            ids=self.ids,
            known_ends=known,
            deleted=deleted,
        )

    def earliest_there(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The log start offsets of those partitions that exist."""
        wanted = list(partitions)
        for _ in range(RACES_MAX):
            try:
                return self.topics.earliest(wanted)
            except (UnknownTopic, BrokerError) as error:
                if not is_out_of_sight(error):
                    raise
                there = self._look_again().partitions
                wanted = [tp for tp in wanted if tp in there]
        return self.topics.earliest(wanted)

    def log_starts(
        self, partitions: Sequence[TopicPartition], end: StreamOffset
    ) -> dict[TopicPartition, Offset]:
        """The log start offsets of the partitions in a micro-batch to `end`; without deleted or recreated
        topics. Raises TopicNotVisible for another topic that cannot be seen.
        """
        if not partitions:
            return {}
        if now_us() < self._log_starts_until and all(tp in self._log_starts for tp in partitions):
            return self._log_starts
        now = self._look_again()
        then = StreamOffset(began={}, reached={}, ids=now.ids)
        visible = frozenset(now.partitions)
        there = [tp for tp in partitions if tp in visible and end.is_same_topic(then, tp.topic)]
        starts = self.earliest_there(there)
        absent = {tp.topic: end.ids.get(tp.topic, ZERO_UUID) for tp in partitions if tp not in starts}
        if hidden := sorted(absent.keys() - self._asked_deleted(absent)):
            raise TopicNotVisible(
                f"the micro-batch to replay needs {_named(hidden)}, which was not deleted and cannot be seen:"
                f" allow the principal to describe and read it, select it again, and restart the query"
            )
        return starts

    def per_offset(self, partitions: Sequence[TopicPartition]) -> Callable[[TopicPartition], float]:
        """Bytes per offset, by partition; refreshed at intervals."""
        now = now_us()
        if now >= self._sizes_due or not self._sizes.knows(partitions):
            self._sizes_due = Micros(now + SIZES_EVERY_US)
            sizes = self.topics.sizes(partitions)
            starts = self.earliest_there(partitions)
            for tp in partitions:
                end = max(self.ends.get(tp, Offset(0)), starts.get(tp, Offset(0)))
                self._sizes.observe(tp, Observed(starts.get(tp, end), end, sizes.get(tp, 0)))
        return self._sizes.per_offset

    def close(self) -> None:
        """Closes the connections; the next request opens them again."""
        self.topics.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _deleted(self, absent: Iterable[str], current: StreamOffset) -> set[str]:
        """The deleted ones of the topics that the last look left out; warns once of the others."""
        asked = {topic: current.ids.get(topic, ZERO_UUID) for topic in absent}
        gone = self._asked_deleted(asked)
        hidden = asked.keys() - gone
        if unreported := sorted(hidden - self._reported_hidden):
            warnings.warn(
                f"{_named(unreported)} cannot be seen, and was not deleted: the query keeps its position and "
                f"reads on once the principal may describe it and the subscription selects it",
                stacklevel=2,
            )
        self._reported_hidden = hidden
        return gone

    def _asked_deleted(self, asked: Mapping[str, Uuid]) -> set[str]:
        """The deleted ones of the topics with these ids; asks once for each look.

        A broker that has just restarted may not know all topics yet, so only an answer that stays counts.
        """
        if new := {topic: id_ for topic, id_ in asked.items() if (topic, id_) not in self._were_deleted}:
            deleted = self.topics.deleted(new)
            for _ in range(self._options.fetch_retries):
                if not deleted:
                    break
                self._pause_s(self._options.fetch_retry_ms / 1000)
                deleted = self.topics.deleted({topic: new[topic] for topic in deleted})
            self._were_deleted.update({(topic, id_): topic in deleted for topic, id_ in new.items()})
        return {topic for topic, topic_id in asked.items() if self._were_deleted[topic, topic_id]}

    def _is_same(self, current: StreamOffset, tp: TopicPartition) -> bool:
        return current.is_same_topic(StreamOffset(began={}, reached={}, ids=self.ids), tp.topic)

    def _list(self, *, is_look_due: bool, may_keep_ends: bool = False) -> None:
        """Fetches ends first and topics second: if the topics are unchanged, the ends belong to them and
        not to recreated ones.
        """
        topics = self._now or self._look_again()
        for _ in range(RACES_MAX):
            ends = self.ends if may_keep_ends else self._ends_of(topics)
            now = self._look_again() if is_look_due or ends is None else topics
            if now == topics and ends is not None:
                if not may_keep_ends:
                    self._ends_due = Micros(now_us() + ENDS_EVERY_US)
                self.ends, self.ids = ends, now.ids
                self._known_ends.update({(now.ids.get(tp.topic), tp): end for tp, end in ends.items()})
                return
            topics, is_look_due, may_keep_ends = now, True, False
        raise UnknownTopic("the topics that this query reads change faster than they can be fetched")

    def _ends_of(self, topics: TopicsNow) -> PartitionOffsets | None:
        try:
            return self.topics.latest(topics.partitions)
        except (UnknownTopic, BrokerError) as error:
            if not is_out_of_sight(error):
                raise
            return None

    def _look_again(self) -> TopicsNow:
        began = now_us()
        now = self.topics.look(is_strict=False)
        self._look_took = now_us() - began
        self._look_due = Micros(began + self._look_took + max(LOOK_EVERY_US, LOOK_SHARE * self._look_took))
        if self._now is not None and now != self._now:
            self.topics.close()  # the client's metadata is outdated
        self._now = now
        self._were_deleted.clear()
        return now

    def _require_named(self, current: StreamOffset) -> None:
        """Subscribed topics that neither exist nor are in the checkpoint have never existed, which is an
        error; a deleted topic is data loss.
        """
        assert self._now is not None
        named = self._options.subscribe or tuple(tp.topic for tp in self._options.assign or ())
        known = {tp.topic for tp in (*self._now.partitions, *current.reached, *current.lost)}
        if any(topic not in known for topic in named):
            self.topics.look(is_strict=True)


def _named(topics: Sequence[str]) -> str:
    shown = ", ".join(map(repr, topics[:NAMED_MAX]))
    more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
    return f"topic {shown}{more}"
