"""Incremental fetch sessions (KIP-227): the broker remembers the fetched partitions; requests and replies
carry only changes.

A broker that answers session id 0 keeps no session: every request is then a full one, as is the request after
an error.
"""

from typing import Final, NamedTuple

from sparklog.model import TopicPartition
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

VERSION_BEFORE_TOPIC_IDS: Final = 12
"""The newest version of Fetch that names topics (KIP-516)."""
_EPOCH_MASK = (1 << 31) - 1


class Wanted(NamedTuple):
    """The fetch parameters of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    bytes_max: int


class FetchSession:
    """The session with one broker.

    Invariant: `_known` has the partitions of the broker's session after the last request that it answered or
    will answer.
    """

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, Wanted] = {}

    def fill(self, request: FetchRequest, wanted: dict[TopicPartition, Wanted]) -> None:
        """Add the changes to the request that make the broker fetch exactly `wanted`."""
        if any(known.topic_id != wanted[p].topic_id for p, known in self._known.items() if p in wanted):
            self.reset()  # the topic was created again: old and new id must not share a session
        changed = (
            wanted if self._id == 0 else {p: want for p, want in wanted.items() if self._known.get(p) != want}
        )
        forgotten = [partition for partition in self._known if partition not in wanted] if self._id else []
        request.session_id, request.session_epoch = self._id, self._epoch
        request.topics = _topics(changed)
        request.forgotten_topics_data = [
            ForgottenTopic(topic=p.topic, topic_id=self._known[p].topic_id, partitions=[p.partition])
            for p in forgotten
        ]
        self._known = dict(wanted)

    def replied(self, session_id: int) -> None:
        """Process a reply without error."""
        self._id = session_id
        # Epoch 0 requests a new session; the epoch wraps to 1.
        self._epoch = max(1, (self._epoch + 1) & _EPOCH_MASK) if session_id else 0
        if not session_id:
            self._known = {}

    def reset(self) -> None:
        """Start a new session: the state of the old one at the broker is unknown."""
        self._id = self._epoch = 0
        self._known = {}


def _topics(wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (topic, partition), want in wanted.items():
        if topic not in topics:
            topics[topic] = FetchTopic(topic=topic, topic_id=want.topic_id, partitions=[])
        topics[topic].partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=want.bytes_max,
            )
        )
    return list(topics.values())
