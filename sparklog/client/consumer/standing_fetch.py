"""One Fetch per broker that waits for new records of the watched partitions, for a stream that has read all
records.

    watch(ends) ──► Fetch(1 byte, long wait) at each leader ──► wait(until): True when one returns records

The brokers keep the list of partitions (KIP-227), so a wait costs one small request per `wait_ms`. A reply
says only that there are new records; the caller requests the end offsets. Replies are read only during
`wait`, possibly hours later. Not safe for use from several threads.

Not a `fetch.Fetcher`, which shares only `FetchSession` with it: its records are discarded, and it has no
positions, validation or resets.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.client.clock import now_us
from sparklog.client.cluster import NO_NODE
from sparklog.client.consumer.fetch_session import VERSION_BEFORE_TOPIC_IDS, FetchSession, Wanted
from sparklog.client.settings import ISOLATION_LEVELS, ClientSettings
from sparklog.client.transport.connection import Answer
from sparklog.client.transport.network import Network
from sparklog.errors import BrokerError, ErrorCode, code_of
from sparklog.model import Micros, NodeId, TopicPartition, Uuid
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from sparklog.wire.schema import ZERO_UUID

WAIT_MS: Final = 5_000
"""The maximum wait of a Fetch: below the request timeout, and short enough for a request behind it on the
connection.
"""
_BYTES: Final = 1
_CHANGED: Final = frozenset(
    {
        *(ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID),
        *(ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }
)
"""The errors of a partition that has changed, which end the wait."""


class StandingFetch:
    """Waits for new records in watched partitions. Invariant: at most one Fetch per broker is unanswered."""

    def __init__(self, settings: ClientSettings, *, wait_ms: int = WAIT_MS) -> None:
        self._settings = settings
        self._wait_ms = min(wait_ms, settings.request_timeout_ms // 2)
        self._network: Network | None = None
        self._sessions: dict[NodeId, FetchSession] = {}
        self._standing: dict[NodeId, None] = {}
        self._not_before: dict[NodeId, Micros] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._reported: dict[TopicPartition, int] = {}

    def watch(self, ends: Mapping[TopicPartition, int]) -> None:
        """Watch for records at or beyond these offsets; other partitions stay as they are."""
        if self._ends.keys() != ends.keys():
            # A Fetch in flight cannot be changed, and new partitions should not wait for its reply.
            self.close()
        self._ends = dict(ends)

    def wait(self, until: Micros) -> bool:
        """Wait until a watched partition has new records or has changed, or until the deadline; returns
        whether that happened.

        A broker that cannot be reached does not count: the next request to it reports the error.
        """
        if not self._ends:
            return False
        network = self._opened()
        while True:
            now = now_us()
            self._send_due(network, now)
            # With the same clock: a rest that ends in between is over at the next turn, which must follow.
            wake = min([until, *(due for due in self._not_before.values() if due > now)])
            has_news = [self._has_news(network, answer) for answer in network.poll(wake)]
            if any(has_news):
                return True
            if now_us() >= until:
                return False

    def close(self) -> None:
        """Close the connections; `wait` opens them again."""
        if self._network is not None:
            self._network.close()
            self._network = None
        for left in (self._sessions, self._standing, self._not_before, self._reported):
            left.clear()

    # -- inside ----------------------------------------------------------------------------------------------

    def _opened(self) -> Network:
        if self._network is None:
            # One request at a time: a Metadata request must not wait behind a waiting Fetch.
            self._network = Network(self._settings, in_flight_max=1)
            self._network.allow_auto_create = False
            self._network.cluster.want_only(sorted({partition.topic for partition in self._ends}))
        return self._network

    def _send_due(self, network: Network, now: Micros) -> None:
        wanted: dict[NodeId, dict[TopicPartition, Wanted]] = {}
        for partition, end in self._ends.items():
            node, view = network.cluster.leader(partition), network.cluster.partition(partition)
            if node == NO_NODE or view is None:
                continue
            if node not in self._standing and now >= self._not_before.get(node, 0):
                topic_id = network.cluster.id_of(partition.topic)
                wanted.setdefault(node, {})[partition] = Wanted(topic_id, end, view.leader_epoch, _BYTES)
        for node, partitions in wanted.items():
            if network.is_ready(node):
                self._send(network, node, partitions)

    def _send(self, network: Network, node: NodeId, wanted: dict[TopicPartition, Wanted]) -> None:
        isolation = ISOLATION_LEVELS[self._settings.isolation_level]
        request = FetchRequest(
            max_wait_ms=self._wait_ms, min_bytes=1, max_bytes=_BYTES, isolation_level=isolation
        )
        self._sessions.setdefault(node, FetchSession()).fill(request, wanted)
        has_ids = all(want.topic_id != ZERO_UUID for want in wanted.values())
        try:
            network.send(
                node, request, _Standing(node), version_max=None if has_ids else VERSION_BEFORE_TOPIC_IDS
            )
        except BrokerError:
            self._rest(network, node)
            return
        self._standing[node] = None

    def _has_news(self, network: Network, answer: Answer) -> bool:
        asked, reply = answer.token, answer.message
        if not isinstance(asked, _Standing):
            return False
        self._standing.pop(asked.node, None)
        if not isinstance(reply, FetchResponse) or reply.error_code:
            self._sessions.pop(asked.node, None)
            if not isinstance(reply, FetchResponse) or not code_of(reply.error_code).name.startswith(
                "FETCH_SESSION"
            ):
                self._rest(network, asked.node)
            return False
        self._sessions[asked.node].replied(reply.session_id)
        has_news = False
        for topic in reply.responses:
            name = topic.topic or network.cluster.name_of(Uuid(topic.topic_id))
            for result in topic.partitions:
                partition = TopicPartition(name or "", result.partition_index)
                if partition in self._ends and self._is_news(network, asked.node, partition, result):
                    has_news = True
        return has_news

    def _is_news(
        self, network: Network, node: NodeId, partition: TopicPartition, partition_data: PartitionData
    ) -> bool:
        code = code_of(partition_data.error_code)
        if code is not ErrorCode.NONE:
            self._sessions.pop(node, None)
            self._rest(network, node)
            return code in _CHANGED
        end = (
            partition_data.last_stable_offset
            if self._settings.isolation_level == "read_committed"
            else partition_data.high_watermark
        )
        if end <= self._ends[partition]:
            return False
        if self._reported.get(partition) == end:
            self._rest(
                network, node
            )  # reported before, and the caller's position is unchanged: return nothing new
            return False
        self._reported[partition] = end
        return True

    def _rest(self, network: Network, node: NodeId) -> None:
        network.cluster.refresh_soon()
        self._not_before[node] = Micros(now_us() + self._settings.retry_backoff_ms * 1000)


class _Standing:
    """The token of a Fetch that waits at a broker."""

    __slots__ = ("node",)

    def __init__(self, node: NodeId) -> None:
        self.node = node
