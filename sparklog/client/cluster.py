"""A client's view of the cluster: brokers, topics by name and id, leaders; and the time and the broker of the
next Metadata request.

A machine without I/O: replies and the time go in, requests come out. Bootstrap addresses are brokers with
negative ids until the first reply has the real ones. Metadata of a partition is never replaced by that of an
older leader epoch. If no known broker can be reached, or the cluster requires it (KIP-899, KIP-1102), the
client starts over from its bootstrap addresses.

    refresh    every wanted topic: at `metadata.max.age.ms`, and after an error, with a back-off
    addition   only the topics that no request has named yet, at once (KIP-526): a client that learns of its
               topics one by one does not request all of them each time
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparklog.client.settings import ClientSettings, address_of
from sparklog.errors import ErrorCode
from sparklog.model import NO_EPOCH, LeaderEpoch, Micros, NodeId, TopicPartition, Uuid
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from sparklog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from sparklog.wire.messages import fetch, produce

NO_NODE: Final = NodeId(-1)
_MS: Final = 1000
_BEGINNING: Final = Micros(0)
_BOOTSTRAP_FIRST: Final = -2
"""The id of the first bootstrap address; -1 means "no node" in the protocol."""
_BACKOFF_FACTOR: Final = 2
_JITTER: Final = 0.2
_LEADERLESS_REPLIES: Final = 100
"""Replies without some leader before the back-off grows: 10 s by default, as a killed broker is fenced within
9 s (`broker.session.timeout.ms`).
"""

Entropy = Callable[[int], bytes]


def backoff_us(first_ms: int, limit_ms: int, attempt: int, entropy: Entropy) -> Micros:
    """The time to wait before attempt number `attempt` (0 is the first retry): doubled up to the limit, and
    varied by up to a fifth at random.
    """
    plain = min(limit_ms, first_ms * _BACKOFF_FACTOR ** min(attempt, 32))
    share = int.from_bytes(entropy(2), "big") / 0xFFFF
    return Micros(int(plain * _MS * (1 - _JITTER + 2 * _JITTER * share)))


class Backoff:
    """The time of the next attempt: later after each consecutive failure, by `retry.backoff.ms` and
    `retry.backoff.max.ms`.
    """

    __slots__ = ("_attempts", "_entropy", "_settings")

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        self._settings = settings
        self._entropy = entropy
        self._attempts = 0

    def later(self, now: Micros) -> Micros:
        """Note a failed attempt: the next one waits for the back-off."""
        wait = backoff_us(
            self._settings.retry_backoff_ms,
            self._settings.retry_backoff_max_ms,
            self._attempts,
            self._entropy,
        )
        self._attempts += 1
        return Micros(now + wait)

    def over(self) -> None:
        """Note a successful attempt."""
        self._attempts = 0


class Broker(NamedTuple):
    """The address of a broker; bootstrap addresses have negative ids."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


class PartitionView(msgspec.Struct, gc=False, frozen=True):
    """The latest metadata of a partition; leader -1 if there is none."""

    partition: int
    leader: NodeId
    leader_epoch: LeaderEpoch


class TopicView(msgspec.Struct, gc=False, frozen=True):
    """The latest metadata of a topic; partitions by number, from 0 without gaps."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionView, ...]

    @property
    def available(self) -> tuple[int, ...]:
        """The partitions that have a leader."""
        return tuple(view.partition for view in self.partitions if view.leader >= 0)


class _Reach(msgspec.Struct, gc=False):
    """The recent connection attempts to one broker."""

    attempts: int = 0
    not_before: Micros = Micros(0)


class Cluster:
    """The metadata of a cluster and the reachability of its brokers. Invariants: `brokers` is never empty;
    `topics` has only topics that are wanted and exist.
    """

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        self._settings = settings
        self._entropy = entropy
        self._bootstrap = {
            NodeId(_BOOTSTRAP_FIRST - index): Broker(NodeId(_BOOTSTRAP_FIRST - index), *address_of(server))
            for index, server in enumerate(settings.bootstrap_servers)
        }
        self.brokers: dict[NodeId, Broker] = dict(self._bootstrap)
        self.topics: dict[str, TopicView] = {}
        self.errors: dict[str, ErrorCode] = {}
        """The errors of wanted topics in the last metadata reply."""
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.features: dict[str, int] = {}
        """The feature levels of the cluster (KIP-584), from the latest handshake."""
        self._features_epoch = -1
        self.answers = 0
        """The number of replies so far, for callers that wait for the next one."""
        self.refreshes = 0
        """The number of replies that were about every wanted topic."""
        self._wanted: dict[str, None] = {}
        self._unasked: dict[str, None] = {}
        """The wanted topics that no request has named yet."""
        self._leaderless: dict[str, None] = {}
        """The topics of which some partition has no leader."""
        self._names_by_id: dict[Uuid, str] = {}
        self._reach: dict[NodeId, _Reach] = {}
        self._is_due = True
        self._is_asked = False
        self._is_refresh = False
        """Whether the request in flight is about every wanted topic."""
        self._attempts = 0
        self._leaderless_replies = 0
        self._not_before = Micros(0)
        self._expires = Micros(0)
        self._unreachable_since: Micros | None = None

    # -- topics ----------------------------------------------------------------------------------------------

    def want(self, topics: Iterable[str]) -> None:
        """Add these topics to the metadata requests."""
        for topic in topics:
            if topic not in self._wanted:
                self._wanted[topic] = self._unasked[topic] = None

    def want_only(self, topics: Iterable[str]) -> None:
        """Request metadata of these topics and no others."""
        wanted = dict.fromkeys(topics)
        for topic in [topic for topic in self._wanted if topic not in wanted]:
            del self._wanted[topic]
            self._unasked.pop(topic, None)
            self.errors.pop(topic, None)
            view = self._forget(topic)
            if view is not None:
                self._names_by_id.pop(view.topic_id, None)
        self.want(wanted)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id."""
        return self._names_by_id.get(Uuid(topic_id))

    def id_of(self, topic: str) -> Uuid:
        """The id of a topic; ZERO_UUID if it is not known."""
        view = self.topics.get(topic)
        return Uuid(ZERO_UUID) if view is None else view.topic_id

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        """Cached metadata of a partition."""
        view = self.topics.get(topic_partition.topic)
        if view is None or topic_partition.partition >= len(view.partitions):
            return None
        return view.partitions[topic_partition.partition]

    def leader(self, topic_partition: TopicPartition) -> NodeId:
        """The leader of a partition; NO_NODE if there is none or it is not known."""
        view = self.partition(topic_partition)
        return NO_NODE if view is None or view.leader not in self.brokers else view.leader

    def leader_changed(
        self,
        topic_partition: TopicPartition,
        leader_and_epoch: "produce.LeaderIdAndEpoch | fetch.LeaderIdAndEpoch | None",
        endpoints: "Iterable[produce.NodeEndpoint] | Iterable[fetch.NodeEndpoint]",
    ) -> bool:
        """Take the leader that a Produce or Fetch reply names, with its address (KIP-951). Returns whether it
        is newer than the known one and its address is known: the request can be repeated without a refresh.
        """
        if leader_and_epoch is None:
            return False
        view, known = self.topics.get(topic_partition.topic), self.partition(topic_partition)
        if view is None or known is None or leader_and_epoch.leader_epoch <= known.leader_epoch:
            return False
        leader = NodeId(leader_and_epoch.leader_id)
        at = next((end for end in endpoints if end.node_id == leader), None)
        if at is not None:
            self._reachable_at({**self.brokers, leader: Broker(leader, at.host, at.port, at.rack)})
        if leader not in self.brokers:
            return False
        self._reach.pop(leader, None)
        partitions = list(view.partitions)
        partitions[topic_partition.partition] = PartitionView(
            topic_partition.partition, leader, LeaderEpoch(leader_and_epoch.leader_epoch)
        )
        self._know(TopicView(view.name, view.topic_id, tuple(partitions)))
        return True

    # -- asking ----------------------------------------------------------------------------------------------

    def refresh_soon(self) -> None:
        """Request metadata again after the back-off: some of it was wrong."""
        self._is_due = True

    def refresh_now(self) -> None:
        """Request metadata again without the back-off: a caller waits for the reply."""
        self._is_due = True
        self._not_before = Micros(0)

    def request(self, now: Micros, *, allow_auto_create: bool = True) -> MetadataRequest | None:
        """The metadata request to send now, if one is due; report its outcome by `replied` or `failed`."""
        deadline = self.deadline()
        if self._is_asked or deadline is None or now < deadline:
            return None
        is_refresh_due = now >= self._refresh_at()
        self._is_refresh = is_refresh_due or len(self._unasked) == len(self._wanted)
        names = self._wanted if self._is_refresh else self._unasked
        self._is_asked, self._is_due = True, self._is_due and not self._is_refresh
        self._unasked = {}
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=allow_auto_create,
        )

    def deadline(self) -> Micros | None:
        """The time of the next request; None while one is in flight."""
        if self._is_asked:
            return None
        # A caller waits for a topic that was never requested: no back-off.
        return _BEGINNING if self._unasked else self._refresh_at()

    def _refresh_at(self) -> Micros:
        return self._not_before if self._is_due else max(self._expires, self._not_before)

    def replied(self, reply: MetadataResponse, now: Micros) -> None:
        """Apply a metadata reply."""
        self._is_asked = False
        self.answers += 1
        if reply.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._start_over(now)
            return
        if reply.brokers:
            self._reachable_at(
                {NodeId(b.node_id): Broker(NodeId(b.node_id), b.host, b.port, b.rack) for b in reply.brokers}
            )
        self.cluster_id = reply.cluster_id
        self.controller_id = NodeId(reply.controller_id)
        for topic in reply.topics:
            self._update_topic(topic)
        self._unreachable_since = None
        if self._is_refresh:
            self.refreshes += 1
            self._expires = Micros(now + self._settings.metadata_max_age_ms * _MS)
            self._leaderless_replies = self._leaderless_replies + 1 if self._lacks_leader() else 0
        elif self._is_due or not (self._lacks_leader() or self._is_refused()):
            return  # an addition does not put off a refresh
        self._back_off(
            now,
            is_progress=not self._is_refused() and self._leaderless_replies <= _LEADERLESS_REPLIES,
        )
        self._is_due = self._is_due or self._lacks_leader()

    def failed(self, now: Micros) -> None:
        """The request failed without a reply."""
        self._is_asked = False
        self._is_due = True
        self._back_off(now, is_progress=False)

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or self._names_by_id.get(Uuid(topic.topic_id), "")
        if name not in self._wanted:
            return
        code = (
            ErrorCode(topic.error_code)
            if topic.error_code in ErrorCode._value2member_map_
            else ErrorCode.UNKNOWN_SERVER_ERROR
        )
        if code is not ErrorCode.NONE:
            self.errors[name] = code
            # Metadata is kept during a leader election, but not after the deletion of its topic.
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                self._forget(name)
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        topic_id = Uuid(topic.topic_id)
        was = (
            {view.partition: view for view in known.partitions}
            if known is not None and known.topic_id == topic_id
            else {}
        )
        by_number = {
            p.partition_index: PartitionView(
                p.partition_index, NodeId(p.leader_id), LeaderEpoch(p.leader_epoch)
            )
            for p in topic.partitions
        }
        count = max(by_number, default=-1) + 1
        views = (by_number.get(number, PartitionView(number, NO_NODE, NO_EPOCH)) for number in range(count))
        self._know(TopicView(name, topic_id, tuple(_newer(was.get(view.partition), view) for view in views)))
        for number, view in by_number.items():
            if number in was and view.leader_epoch > was[number].leader_epoch:
                self._reach.pop(view.leader, None)  # it was elected since: the broker is alive
        if topic_id != ZERO_UUID:
            self._names_by_id[topic_id] = name

    def _is_refused(self) -> bool:
        """Whether a wanted topic is missing, so that another request may help."""
        return any(
            code.is_retriable and code is not ErrorCode.LEADER_NOT_AVAILABLE for code in self.errors.values()
        )

    def _lacks_leader(self) -> bool:
        """Whether a partition of a wanted topic has no leader: its election takes a short time."""
        return bool(self._leaderless) or ErrorCode.LEADER_NOT_AVAILABLE in self.errors.values()

    def _know(self, view: TopicView) -> None:
        self.topics[view.name] = view
        if any(partition.leader < 0 for partition in view.partitions):
            self._leaderless[view.name] = None
        else:
            self._leaderless.pop(view.name, None)

    def _forget(self, name: str) -> TopicView | None:
        self._leaderless.pop(name, None)
        return self.topics.pop(name, None)

    def _back_off(self, now: Micros, *, is_progress: bool) -> None:
        self._attempts = 0 if is_progress else self._attempts + 1
        wait = backoff_us(
            self._settings.retry_backoff_ms,
            self._settings.retry_backoff_max_ms,
            max(0, self._attempts - 1),
            self._entropy,
        )
        self._not_before = Micros(now + wait)
        self._is_due = self._is_due or not is_progress

    # -- reaching --------------------------------------------------------------------------------------------

    def may_connect(self, node: NodeId, now: Micros) -> bool:
        """Whether the back-off after the last failure has passed."""
        return now >= self.reachable_from(node)

    def reachable_from(self, node: NodeId) -> Micros:
        """The end of the back-off after the last failure."""
        reach = self._reach.get(node)
        return _BEGINNING if reach is None else reach.not_before

    def connect_failed(self, node: NodeId, now: Micros) -> None:
        """Note that a connection attempt failed, or that a connection broke."""
        reach = self._reach.setdefault(node, _Reach())
        wait = backoff_us(
            self._settings.reconnect_backoff_ms,
            self._settings.reconnect_backoff_max_ms,
            reach.attempts,
            self._entropy,
        )
        reach.attempts += 1
        reach.not_before = Micros(now + wait)
        self._is_due = True
        if self._unreachable_since is None:
            self._unreachable_since = now
        if self._is_lost(now):
            self._start_over(now)

    def setup_timeout_us(self, node: NodeId) -> int:
        """The timeout of the next connection attempt: doubled with every failure."""
        attempts = self._reach[node].attempts if node in self._reach else 0
        first, limit = (
            self._settings.socket_connection_setup_timeout_ms,
            self._settings.socket_connection_setup_timeout_max_ms,
        )
        return min(max(first, limit), first << min(attempts, 16)) * _MS

    def connected(self, node: NodeId) -> None:
        """Note that a connection is ready."""
        self._reach.pop(node, None)

    def features_received(self, features: Mapping[str, int], epoch: int) -> None:
        """Take the feature levels of a handshake; those of a broker with older metadata are ignored."""
        if epoch >= self._features_epoch:
            self.features, self._features_epoch = dict(features), epoch

    def next_reach(self, after: Micros = _BEGINNING) -> Micros | None:
        """The first time after `after` at which the back-off of a known broker ends; None if there
        is none.
        """
        times = (reach.not_before for node, reach in self._reach.items() if node in self.brokers)
        return min((time for time in times if time > after), default=None)

    def candidates(self) -> list[NodeId]:
        """The brokers to try for a request that any broker can answer: those with the fewest failures first,
        equal ones in random order.
        """
        start = int.from_bytes(self._entropy(2), "big")
        nodes = list(self.brokers)
        turned = nodes[start % len(nodes) :] + nodes[: start % len(nodes)]
        return sorted(turned, key=lambda node: self._reach[node].attempts if node in self._reach else 0)

    def has_left(self, node: NodeId) -> bool:
        """Whether the brokers of the cluster are known, and this is none of them."""
        return node >= 0 and node not in self.brokers and min(self.brokers) >= 0

    def _reachable_at(self, brokers: dict[NodeId, Broker]) -> None:
        """Replace the known brokers. One at a new address has no failed attempts yet."""
        for node, broker in brokers.items():
            known = self.brokers.get(node)
            if known is not None and (known.host, known.port) != (broker.host, broker.port):
                self._reach.pop(node, None)
        self.brokers = brokers

    def _is_lost(self, now: Micros) -> bool:
        """Whether no known broker can be reached, or none has sent metadata for too long."""
        if self._settings.metadata_recovery_strategy != "rebootstrap" or all(
            node < 0 for node in self.brokers
        ):
            return False
        if all(node in self._reach for node in self.brokers):
            return True
        since = self._unreachable_since
        return (
            since is not None and now - since > self._settings.metadata_recovery_rebootstrap_trigger_ms * _MS
        )

    def _start_over(self, now: Micros) -> None:
        self.brokers = dict(self._bootstrap)
        self._reach = {node: reach for node, reach in self._reach.items() if node in self.brokers}
        self._unreachable_since = None
        self._is_due = True
        self._not_before = now


def _newer(known: PartitionView | None, received: PartitionView) -> PartitionView:
    """The newer of the known and the received partition: replies of different brokers may arrive out of
    order.
    """
    if known is None or received.leader_epoch < 0 or received.leader_epoch >= known.leader_epoch:
        return received
    return known
