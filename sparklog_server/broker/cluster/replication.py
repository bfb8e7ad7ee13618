"""Replication between this broker and the others: fetchers for the partitions that it follows, and changes of
the ISR for those that it leads.

    image ─► partitions placed ─► fetchers by leader ─► one link for each ─► logs, high watermarks
                  │                      ▲
                  │                      └── truncated by a job ◄── diverging epoch
                  └─► proposed ISRs ─► AlterPartition, one at a time ─► committed, or refused

A leader has two fetchers at most: what is outside the ISR catches up on a link of its own, since a response
with old records may wait for the leader's disk, and producers must not wait for that.

A node that is alone has none of this.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sparklog.effects import Loss
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, Micros, NodeId, Offset, TopicPartition, Uuid, earlier
from sparklog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.broker_lifecycle import BrokerEpoch
from sparklog_server.broker.cluster.links import CATCHING_UP, OFFSETS, REPLICAS, Address, Links
from sparklog_server.broker.dynamic_config import (
    UNTHROTTLED,
    DynamicBrokerConfig,
    replication_rates,
    throttled_partitions,
)
from sparklog_server.broker.proposals import Proposing
from sparklog_server.config.replica_settings import RESPONSE_BYTES_MAX
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.replica.fetcher import Fetcher, FetchLimits, SentFetch
from sparklog_server.replica.follower import FollowedKey, Follower, Phase
from sparklog_server.replica.isr import IsrState
from sparklog_server.replica.leader import Following, LeaderReplica
from sparklog_server.replica.partition import Partition, check_in_sync, isr_committed, isr_refused
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.replica.sessions import ReplicaSessions
    from sparklog_server.replica.throttle import Throttles

_EARLIEST_LOCAL: Final = -4
_LATEST: Final = -1
_ALTER_RETRY_US: Final = 50_000
_SILENCE_MS: Final = 4_500
_PROCESS_ENDED: Final = (Loss.ENDED, Loss.RESET, Loss.REFUSED)
_SUSPECTED_US: Final = 500_000
"""How long Metadata does not name a broker whose link has ended: a client that is told of a dead leader asks
again only after a second, and one that is told of none within 100 ms. An election takes less.
"""
_REFUSED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Refusals that leave the ISR as it was; after any other the metadata tells."""
_AWAITS_METADATA: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
Lane = tuple[NodeId, bool]
"""A leader, and whether the partitions are outside the ISR."""
Proposed = dict[tuple[Uuid, int], tuple[Partition, LeaderReplica, IsrState]]


class ReplicationPort(Proposing, Protocol):
    """What replication uses of the broker."""

    broker_epoch: BrokerEpoch
    partitions: ReplicaManager
    suspects: dict[NodeId, Micros]
    live: DynamicBrokerConfig
    throttles: "Throttles | None"

    @property
    def image(self) -> MetadataImage: ...

    @property
    def replica_sessions(self) -> "ReplicaSessions": ...

    @property
    def links(self) -> Links: ...

    @property
    def settings(self) -> BrokerSettings: ...

    def address_of(self, node: NodeId, /) -> Address | None: ...


class Replication:
    """Invariants: each followed partition that is open is in the fetcher of its leader; at most one
    AlterPartition waits for its answer; `deadline_us` is the next time for `tick`.
    """

    def __init__(self, context: ReplicationPort, trace: Callable[..., None]) -> None:
        self.deadline_us: Micros | None = None
        self._context = context
        self._partitions = context.partitions
        self._noted = context.partitions.noted
        self._truncations = context.partitions.truncations
        self._trace = trace
        self._fetchers: dict[Lane, Fetcher] = {}
        self._placed: dict[FollowedKey, tuple[Lane, Follower]] = {}
        self._addresses: dict[NodeId, Address] = {}  # of leaders, while no broker changes
        self._asked: dict[NodeId, Address] = {}
        self._is_altering = False
        self._alter_again_us: Micros | None = None
        self._checks_us = context.settings.replica.lag_time_ms_max * 1000 // 2
        self._check_us: Micros | None = None
        self._is_due = True
        settings = context.settings.replica
        # The leader answers after the longest wait: a link that is silent for longer is opened anew.
        self._answer_us = min(settings.socket_timeout_ms, settings.fetch_wait_ms_max + _SILENCE_MS) * 1000
        self._limits = FetchLimits(
            wait_ms_max=settings.fetch_wait_ms_max,
            bytes_min=settings.fetch_bytes_min,
            partition_bytes_max=settings.fetch_bytes_max,
            response_bytes_max=min(settings.response_bytes_max, RESPONSE_BYTES_MAX),
            backoff_us=settings.fetch_backoff_ms * 1000,
        )

    # -- turns

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do."""
        noted = self._noted
        return bool(
            self._is_due
            or noted.placed
            or noted.synced
            or noted.read
            or self._truncations.done
            or (noted.proposals and not self._is_altering and self._alter_again_us is None)
        )

    def turn(self, now: Instant) -> None:
        """Follow the changes of this turn: roles, syncs, truncations; propose ISRs; send the next fetches."""
        noted, self._is_due = self._noted, False
        if noted.placed:
            placed, noted.placed = noted.placed, {}
            for one in placed:
                self._place(one)
        if self._truncations.done:
            truncated, self._truncations.done = self._truncations.done, {}
            for one in truncated:
                self._fetch_on(one, now)
        if noted.synced:
            synced, noted.synced = noted.synced, {}
            for one in synced:
                if (found := self._follower_of(one)) is not None:
                    found[0].changed(found[1].key)
        if noted.read:
            read, noted.read = noted.read, {}
            for one in read:
                if (found := self._follower_of(one)) is not None:
                    found[0].read(found[1], now)
        if noted.proposals and not self._is_altering and self._alter_again_us is None:
            self._alter(now)
        for lane, fetcher in self._fetchers.items():
            self._fetch(lane, fetcher, now)
        if self._check_us is None:
            self._check_us = Micros(now.mono_us + self._checks_us)
        self._schedule()

    def tick(self, now: Instant) -> None:
        """Check the ISRs, and end rests whose time has come."""
        if self._check_us is not None and self._check_us <= now.mono_us:
            self._check_us = Micros(now.mono_us + self._checks_us)
            for one in self._partitions:
                check_in_sync(one, self._partitions.rules, now)
        if self._alter_again_us is not None and self._alter_again_us <= now.mono_us:
            self._alter_again_us = None
        if self._context.throttles is not None:
            self._context.throttles.leader.refill(now)
        self._is_due = True

    def _schedule(self) -> None:
        due_us = earlier(self._check_us, self._alter_again_us)
        if self._context.broker_epoch.value < 0:
            self.deadline_us = due_us  # nothing is fetched before the registration
            return
        for fetcher in self._fetchers.values():
            fetch_us = fetcher.deadline()
            if fetch_us is not None:
                due_us = earlier(due_us, fetch_us)
        if self._context.throttles is not None:
            due_us = earlier(due_us, self._context.throttles.leader.deadline_us)
        self.deadline_us = due_us

    def published(self, delta: MetadataDelta, now: Instant) -> None:
        """Settings or brokers have changed: throttles apply or end at once. A broker that was unreachable may
        be back, perhaps at another address, and the replica of one may not join an ISR any more.
        """
        if delta.configs_changed:
            self._throttle(now)
        if not delta.brokers_changed:
            return
        self._addresses.clear()
        for one in self._partitions:
            one.eligibility_changed(now)
        for node in delta.brokers_changed:
            self._context.suspects.pop(node, None)
            for lane in ((node, False), (node, True)):
                if (fetcher := self._fetchers.get(lane)) is not None:
                    fetcher.retry_now()
                    self._is_due = True

    # -- throttles

    def _throttle(self, now: Instant) -> None:
        """Let the rates of the settings apply, and the lists of the topics."""
        context, rates = self._context, replication_rates(self._context.live.layers)
        throttles = context.throttles
        if throttles is None:
            if rates == UNTHROTTLED:
                return
            throttles = context.throttles = self._throttles(now)
        throttles.leader.change(rates.leader, rates.reassignment, now)
        throttles.follower.change(rates.follower, rates.reassignment, now)
        context.replica_sessions.throttle_by(throttles.leader if throttles.leader.is_set else None)
        throttles.leader.waiting.clear()  # all sessions were told
        for fetcher in self._fetchers.values():
            self._throttle_fetcher(fetcher)
        self._emptied()

    def _throttles(self, now: Instant) -> "Throttles":
        from sparklog_server.replica.throttle import Throttle, Throttles  # most nodes throttle nothing

        live, node_id = self._context.live, self._context.settings.node_id
        return Throttles(
            Throttle(
                lambda topic: throttled_partitions(
                    live.topic(topic).leader_replication_throttled_replicas, node_id
                ),
                self._emptied,
                now,
            ),
            Throttle(
                lambda topic: throttled_partitions(
                    live.topic(topic).follower_replication_throttled_replicas, node_id
                ),
                self._emptied,
                now,
            ),
        )

    def _throttle_fetcher(self, fetcher: Fetcher) -> None:
        throttles = self._context.throttles
        if throttles is not None:
            follower = throttles.follower
            fetcher.throttle_by(follower if follower.is_set else None, self._is_outside)

    def _is_outside(self, partition: TopicPartition) -> bool:
        """Whether this node's replica is not in the ISR, as far as this node knows."""
        known = self._context.image.partition(partition)
        return known is None or self._context.settings.node_id not in known.isr

    def _emptied(self) -> None:
        """A throttle has a deadline now."""
        self._is_due = True

    # -- the partitions that this node follows

    def _place(self, partition: Partition) -> None:
        """Follow a partition from its leader, or follow it no more."""
        name = partition.topic_partition
        topic_id = partition.log.topic_id
        key = topic_id, name.partition
        role = partition.role
        known = self._placed.get(key)
        if isinstance(role, Following) and self._partitions.find(name.topic, name.partition) is partition:
            leader, leader_epoch = role
            lane = leader, self._is_outside(name)
            if (
                known is not None
                and known[0][0] == leader
                and known[1].leader_epoch == leader_epoch
                and known[1].partition is partition
            ):
                if known[0] == lane:
                    return
                follower = known[1]
                if follower.phase is Phase.RESTING:
                    follower.fetch_again()
            else:
                follower = Follower(partition, topic_id, leader_epoch)
            self._leave(key)
            self._placed[key] = lane, follower
            fetcher = self._fetchers.get(lane)
            if fetcher is None:
                fetcher = self._fetchers[lane] = Fetcher(
                    NodeId(self._context.settings.node_id), leader, self._limits, self, self._trace
                )
                self._throttle_fetcher(fetcher)
            fetcher.follow(follower)
        elif known is not None and known[1].partition is partition:
            self._leave(key)

    def _leave(self, key: FollowedKey) -> None:
        known = self._placed.pop(key, None)
        if known is not None:
            self._fetchers[known[0]].leave(key)

    def _follower_of(self, partition: Partition) -> tuple[Fetcher, Follower] | None:
        known = self._placed.get((partition.log.topic_id, partition.topic_partition.partition))
        if known is None or known[1].partition is not partition:
            return None
        return self._fetchers[known[0]], known[1]

    def _fetch_on(self, partition: Partition, now: Instant) -> None:
        """A truncation is done."""
        found = self._follower_of(partition)
        if found is not None and not partition.log.is_truncating:
            fetcher, follower = found
            fetcher.go_on(follower, now)

    # -- fetches

    def _fetch(self, lane: Lane, fetcher: Fetcher, now: Instant) -> None:
        """Send the next fetch of a fetcher, if there is one."""
        context = self._context
        if context.broker_epoch.value < 0:
            return  # not registered: a fetch would prove nothing of this incarnation (KIP-903)
        sent = fetcher.next_request(context.broker_epoch.value, now)
        if sent is None:
            return
        address = self._addresses.get(fetcher.leader) or self._found(fetcher.leader)
        if address is None:
            fetcher.lost(sent, "the leader has no address", now)
            return
        context.links.ask(
            address,
            CATCHING_UP if lane[1] else REPLICAS,
            sent.request,
            partial(self._fetched, fetcher, sent),
            now,
            timeout_us=self._answer_us,
        )

    def _found(self, leader: NodeId) -> Address | None:
        """Look up the address of a leader; the link to an earlier one is closed."""
        address = self._context.address_of(leader)
        if address is None:
            return None
        known = self._asked.get(leader)
        if known is not None and known != address:
            self._context.links.close(known, REPLICAS)
            self._context.links.close(known, CATCHING_UP)
        self._asked[leader] = self._addresses[leader] = address
        return address

    def _fetched(self, fetcher: Fetcher, sent: SentFetch, answer: Message | Loss, now: Instant) -> None:
        suspects = self._context.suspects
        if isinstance(answer, FetchResponse):
            suspects.pop(fetcher.leader, None)
            fetcher.responded(sent, answer, now)
        else:
            if answer in _PROCESS_ENDED:
                suspects[fetcher.leader] = Micros(now.mono_us + _SUSPECTED_US)
            reason = answer.value if isinstance(answer, Loss) else "not a response to a fetch"
            fetcher.lost(sent, reason, now)
        self._is_due = True

    # -- truncations

    def cut(self, follower: Follower, offset: Offset, now: Instant) -> None:
        """Truncate the log of a follower by a job."""
        partition = follower.partition
        self._trace(
            "replica-truncated",
            partition=str(partition.topic_partition),
            end_offset=offset,
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
        )
        self._truncations.cut(partition, offset, now)

    def restart(self, follower: Follower, offset: Offset, now: Instant) -> None:
        """Begin the log of a follower anew by a job."""
        self._trace(
            "replica-begins-anew",
            partition=str(follower.partition.topic_partition),
            log_start_offset=offset,
            log_end_offset=follower.partition.log.log_end_offset,
        )
        self._truncations.restart(follower.partition, offset, now)

    def seek(self, follower: Follower, now: Instant) -> None:
        """The fetch offset of a follower is outside its leader's log: find where that begins."""
        self._list_offset(follower, _EARLIEST_LOCAL, now)

    def _list_offset(self, follower: Follower, timestamp: int, now: Instant) -> None:
        context, name = self._context, follower.partition.topic_partition
        known = self._placed.get(follower.key)
        address = None if known is None else context.address_of(known[0][0])
        if address is None:
            self._rest(follower, now)
            return
        asked = ListOffsetsPartition(
            partition_index=name.partition,
            current_leader_epoch=follower.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=context.settings.node_id,
            topics=[ListOffsetsTopic(name=name.topic, partitions=[asked])],
        )
        context.links.ask(
            address,
            OFFSETS,
            request,
            partial(self._listed, follower, timestamp),
            now,
            timeout_us=context.settings.replica.socket_timeout_ms * 1000,
        )

    def _listed(self, follower: Follower, timestamp: int, answer: Message | Loss, now: Instant) -> None:
        """The leader's log begins after the end of this one: begin anew there. If not, it ends before."""
        found = self._follower_of(follower.partition)
        if found is None or found[1] is not follower:
            return
        parts = (
            [part for topic in answer.topics for part in topic.partitions]
            if isinstance(answer, ListOffsetsResponse)
            else []
        )
        if not parts or parts[0].error_code or parts[0].offset < 0:
            self._rest(follower, now)
            return
        offset, log_end = Offset(parts[0].offset), follower.partition.log.log_end_offset
        if timestamp == _EARLIEST_LOCAL and offset > log_end:
            self.restart(follower, offset, now)
        elif timestamp == _EARLIEST_LOCAL:
            self._list_offset(follower, _LATEST, now)
        elif offset < log_end:
            self.cut(follower, offset, now)
        else:
            self._rest(follower, now)

    def _rest(self, follower: Follower, now: Instant) -> None:
        if (found := self._follower_of(follower.partition)) is not None and found[1] is follower:
            found[0].rest(follower, self._limits.backoff_us, now)
            self._is_due = True

    # -- the ISRs of the partitions that this node leads

    def _alter(self, now: Instant) -> None:
        """Propose the changed ISRs to the controller, all in one request."""
        proposals, self._noted.proposals = self._noted.proposals, {}
        proposed: Proposed = {}
        topics: dict[Uuid, AlterPartitionRequestTopicData] = {}
        for partition in proposals:
            leader = partition.leader
            if leader is None or not leader.isr.is_changing:
                continue
            topic_id, index = partition.log.topic_id, partition.topic_partition.partition
            proposed[topic_id, index] = partition, leader, leader.isr.state
            if topic_id not in topics:
                topics[topic_id] = AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[])
            topics[topic_id].partitions.append(self._proposal(leader, index))
        if not proposed:
            return
        self._is_altering = True
        context = self._context
        request = AlterPartitionRequest(
            broker_id=context.settings.node_id,
            broker_epoch=context.broker_epoch.value,
            topics=list(topics.values()),
        )
        context.propose(request, AlterPartitionResponse, partial(self._altered, proposed), now)

    def _proposal(self, leader: LeaderReplica, index: int) -> AlterPartitionRequestPartitionData:
        isr = leader.isr
        return AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=leader.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(
                    broker_id=node,
                    broker_epoch=leader.followers[node].broker_epoch
                    if node in leader.followers
                    else self._context.broker_epoch.value,
                )
                for node in isr.proposed
            ],
            leader_recovery_state=0,
            partition_epoch=isr.partition_epoch,
        )

    def _altered(self, proposed: Proposed, reply: AlterPartitionResponse, now: Instant) -> None:
        """The controller has decided. What it does not mention is proposed again."""
        self._is_altering = False
        self._is_due = True
        undecided = dict(proposed)
        if not reply.error_code:
            for topic in reply.topics:
                for data in topic.partitions:
                    known = proposed.get((Uuid(topic.topic_id), data.partition_index))
                    if known is not None and self._decided(*known, data, now):
                        del undecided[Uuid(topic.topic_id), data.partition_index]
        else:
            self._trace("isr-not-changed", reason=code_of(reply.error_code).name, count=len(proposed))
        for partition, leader, _ in undecided.values():
            if partition.leader is leader and leader.isr.is_changing:
                self._noted.proposals[partition] = None
                self._alter_again_us = Micros(now.mono_us + _ALTER_RETRY_US)

    def _decided(
        self,
        partition: Partition,
        leader: LeaderReplica,
        change: IsrState,
        data: AlterPartitionResponsePartitionData,
        now: Instant,
    ) -> bool:
        """Take over the decision on one partition; False if it is to be proposed again."""
        code, rules = code_of(data.error_code), self._partitions.rules
        if code is ErrorCode.NONE:
            rules.expands += change is IsrState.EXPANDING
            rules.shrinks += change is IsrState.SHRINKING
            if data.leader_epoch == leader.leader_epoch:
                isr = tuple([NodeId(node) for node in data.isr])
                isr_committed(partition, leader, isr, data.partition_epoch, now)
            return True
        name: TopicPartition = partition.topic_partition
        self._trace("isr-not-changed", partition=str(name), reason=code.name)
        rules.refused += 1
        if code in _REFUSED:
            isr_refused(partition, leader, now)
            return True
        return code in _AWAITS_METADATA

    # -- the end

    def close(self) -> None:
        """Fetch and propose nothing more: the broker stops."""
        self._fetchers.clear()
        self._placed.clear()
        self._noted.proposals.clear()
        self.deadline_us = self._check_us = self._alter_again_us = None
        self._is_due = False
