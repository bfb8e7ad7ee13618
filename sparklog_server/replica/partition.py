"""One replica on this node: its log, high watermark, log start offset and purgatory, which outlive its roles.

    IDLE ── placed: another broker leads ──► FOLLOWING ◄── placed ──► LEADING (one leader epoch)
      ▲                                          │                        │
      └─────────── no leader, offline, deleted ──┴────────────────────────┘

A role that ends releases every waiter, and tells the standing fetches of other replicas. `disk` catches the
errors of the disk, `durability` tracks the offsets that survive a crash, and `role` and `leader` tell whether
this replica serves clients. An offline partition stays offline until the process restarts.
"""

from collections.abc import Callable
from typing import Final, Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, NodeId, Offset, TopicPartition
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import AppendResult, PartitionLog
from sparklog_server.log.producers.producer_state import Verification
from sparklog_server.log.producers.validate import Sent
from sparklog_server.metadata.entries import NO_NODE, PartitionImage
from sparklog_server.replica.disk_guard import DirectoryDisk, DiskGuard
from sparklog_server.replica.durability import LINGER_US, Durability
from sparklog_server.replica.isr import InSyncRules
from sparklog_server.replica.leader import Following, LeaderReplica, PartitionUnavailable, Role, claim_refused
from sparklog_server.replica.purgatory import Purgatory, Waiter
from sparklog_server.replica.traffic import TopicTraffic

_ENDED = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The errors of a partition that takes no further role: it is offline, or deleted."""


class Home(DirectoryDisk, Protocol):
    """The log directory of a partition."""

    is_congested: bool  # too many bytes are unsynced: producers are paused

    def mark_dirty(
        self, partition: "Partition", size: int, now: Instant, *, within_us: int = LINGER_US
    ) -> None:
        """Sync `partition`, which has `size` more unsynced bytes, at most `within_us` from now."""

    def hurry(self) -> None:
        """Begin the next sync at once, since a request waits for it."""

    def log_start_moved(self, now: Instant, *, is_awaited: bool) -> None:
        """Write a checkpoint of the log starts: at once if a request waits for it."""

    def forget_cut(self, partition: "Partition") -> None:
        """Drop a truncation that has not begun."""

    def partition_failed(self, partition: "Partition", error: StorageError) -> None:
        """Take `partition` alone offline: a file of its log cannot be read."""


class Noted:
    """The partitions of a node for which the broker has work at the end of a turn, which drains these tables:
    a proposed ISR, a new role or placement; of followers: records that are durable now, a reader that waits.
    """

    __slots__ = ("placed", "proposals", "read", "synced")

    def __init__(self) -> None:
        self.proposals: dict[Partition, None] = {}
        self.placed: dict[Partition, None] = {}
        self.read: dict[Partition, None] = {}
        self.synced: dict[Partition, None] = {}


class Standing(Protocol):
    """The fetch of a partition that stands in a session (KIP-227). Must not use the partition."""

    def appended(self) -> None:
        """The log has grown."""

    def high_watermark_moved(self) -> None: ...

    def log_start_moved(self) -> None: ...

    def in_sync_changed(self) -> None:
        """The ISR has changed, or is proposed to."""

    def role_ended(self) -> None:
        """The partition has forgotten this fetch: its role has ended."""


class Partition:
    """Log, high watermark, role and purgatory of one partition.

    Invariants: log start offset ≤ high watermark ≤ log end offset; the high watermark moves back only with
    the log of a follower that is truncated; a record below it is committed by the rule of
    `sparklog.ack.flush`; `leader` is `role` if this broker leads, else None, and `error` is NONE only then.
    `standing` are the fetches of replicas and sessions that are told of every change here.

    One class, as Kafka's Partition is: a change of the log, of the role or of the ISR may move the high
    watermark, and each move wakes parked requests and standing fetches. The rules are elsewhere: of the high
    watermark and the ISR in `leader` and `isr`, of durability in `durability`, of the disk in `disk_guard`.
    """

    __slots__ = (
        "_flush",
        "_is_frozen",
        "_node_id",
        "_noted",
        "_replica_count",
        "_rules",
        "adding",
        "disk",
        "durability",
        "error",
        "high_watermark",
        "home",
        "in_sync_min",
        "keeps_codec",
        "leader",
        "log",
        "purgatory",
        "role",
        "standing",
        "topic_partition",
    )

    def __init__(
        self,
        log: PartitionLog,
        home: Home,
        *,
        node_id: NodeId,
        high_watermark: Offset,
        flush: str,
        replica_count: int,
        parked_max: int,
        rules: InSyncRules,
        noted: Noted,
        traffic: TopicTraffic,
    ) -> None:
        """`high_watermark` is the checkpointed one: of the records of an earlier process, only those
        acknowledged count as committed. `flush` is the value of `sparklog.ack.flush`.
        """
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.home = home
        self.disk = DiskGuard(log, home, self._unreadable, traffic)
        self._flush = flush
        self._replica_count = replica_count
        self.durability = Durability(
            log, waits_for_sync=flush == "always" or (flush == "auto" and replica_count == 1)
        )
        self.high_watermark = max(log.log_start_offset, min(high_watermark, self.durability.acknowledged_end))
        self.role: Role = None
        self.leader: LeaderReplica | None = None
        self.error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.purgatory = Purgatory(parked_max)
        self.in_sync_min = 1
        self._rules = rules
        self._noted = noted
        self.standing: dict[Standing, None] = {}
        self._node_id = node_id
        self._is_frozen = False  # the high watermark does not move
        self.adding: tuple[NodeId, ...] = ()  # the replicas that a reassignment adds
        self.settings = log.settings

    @property
    def settings(self) -> LogConfig:
        """The settings of the log; flush.messages and flush.ms apply to its syncs."""
        return self.log.settings

    @settings.setter
    def settings(self, settings: LogConfig) -> None:
        self.log.settings = settings
        self.durability.configure(settings)
        self.keeps_codec = settings.compression_type == "producer"  # batches are stored as they are received

    # -- roles

    def placed(self, placement: PartitionImage, now: Instant) -> bool:
        """Take the role that the image assigns to this replica, or the new ISR and replicas of the same
        leadership. Returns whether a leadership begins.

        A leadership begins only after a truncation in progress, when the image is applied again.
        """
        if self.error in _ENDED or self.log.is_closed:
            return False
        self._replica_count = len(placement.replicas)
        self.adding = placement.adding_replicas
        self._noted.placed[self] = None
        leader = self.leader
        if placement.leader != self._node_id:
            role: Following | None = None
            if placement.leader != NO_NODE:
                role = Following(placement.leader, placement.leader_epoch)
            if role != self.role:
                self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER, role)
            self._choose_durability(now)
            if self.durability.is_sync_awaited:  # recovered records that a fetch could not count as held
                self.home.mark_dirty(self, 0, now)
                self.home.hurry()
            return False
        if leader is not None and leader.leader_epoch == placement.leader_epoch:
            leader.replicas_changed(placement, self._node_id, now)
            leader.isr.commit(placement.isr, placement.partition_epoch)
            self.in_sync_changed(now)
            return False
        if leader is not None and leader.leader_epoch + 1 == placement.leader_epoch:
            self._lead_on(leader, placement, now)
            return True
        self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        if self.log.is_truncating:
            return False
        self._lead(placement, now)
        return True

    def _lead_on(self, leader: LeaderReplica, placement: PartitionImage, now: Instant) -> None:
        """Lead in the next epoch, which began because a replica was dropped: no other broker has led in
        between, so what requests wait for is still in the log. Those who fetch learn the epoch.
        """
        leader.lead_on(placement, self._node_id, epoch_start=self.log.log_end_offset, now=now)
        self.log.assign_epoch(placement.leader_epoch, leader.epoch_start)
        self._end_standing()
        self.purgatory.release_watchers()
        self.in_sync_changed(now)
        if self.durability.is_log_start_awaited:
            self.durability.release(self.low_watermark)

    def _lead(self, placement: PartitionImage, now: Instant) -> None:
        log_end = self.log.log_end_offset
        self.role = self.leader = LeaderReplica(
            placement, node_id=self._node_id, epoch_start=log_end, now=now
        )
        self.error = ErrorCode.NONE
        self.log.assign_epoch(placement.leader_epoch, log_end)
        self._choose_durability(now)
        self._advance(now)
        if self.durability.is_sync_awaited:
            self.home.mark_dirty(self, 0, now)

    def go_offline(self) -> None:
        """Serve no requests, and fetch nothing, until the process restarts: the disk has failed."""
        self._noted.placed[self] = None
        self._resign(ErrorCode.KAFKA_STORAGE_ERROR, None)

    def close(self, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        """End the replica: the topic is deleted, or the replica has left this node. Waiting requests get
        `error`.
        """
        self._noted.placed[self] = None
        self._resign(error, None)
        self.log.close()

    def _resign(self, error: ErrorCode, role: Following | None) -> None:
        """End the role, and release every waiter: each finds `error`, or another leadership."""
        self.role, self.leader, self.error = role, None, error
        self.home.forget_cut(self)
        self.purgatory.release_all()
        self.durability.release_all()
        self._end_standing()

    def _end_standing(self) -> None:
        standing, self.standing = self.standing, {}
        for one in standing:
            one.role_ended()

    def leader_for(self, claimed_epoch: int) -> LeaderReplica:
        """The leadership, for a peer that claims this epoch (-1: none). Raises PartitionUnavailable."""
        leader = self.leader
        if leader is None:
            raise PartitionUnavailable(self.error)
        if claimed_epoch >= 0 and claimed_epoch != leader.leader_epoch:
            raise claim_refused(claimed_epoch, leader.leader_epoch)
        return leader

    def loss_of(self, role: Role) -> ErrorCode:
        """The error of a request that began under `role`; NONE while that role lasts. The high watermark
        outlives it: then an offset below may name another record than the request means.
        """
        if role is not None and self.role is role:
            return ErrorCode.NONE
        return self.error if self.leader is None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- watermarks

    @property
    def promised_end(self) -> Offset:
        """The high watermark as Kafka defines it, which does not wait for the disk: the log end offset if
        no follower is in sync.
        """
        is_alone = self.leader is not None and self.leader.is_alone
        return self.log.log_end_offset if is_alone else self.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the records that read_committed consumers may see."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether the ISR, the leader included, has `min.insync.replicas` members, as acks=all requires; a
        partition with fewer replicas requires all of them.
        """
        leader = self.leader
        return leader is None or len(leader.isr.committed) >= min(self.in_sync_min, self._replica_count)

    def configure(self, *, in_sync_min: int, flush: str, now: Instant) -> None:
        """Take over `min.insync.replicas` and `sparklog.ack.flush`; committed records stay committed."""
        self.in_sync_min, self._flush = in_sync_min, flush
        self._choose_durability(now)
        self._advance(now)

    def _choose_durability(self, now: Instant) -> None:
        """Decide whether a record counts as held by this replica only once it is synced: with `auto` at a
        leader while fewer than two replicas are in sync.
        """
        if self._flush == "auto":
            leader = self.leader
            waits_for_sync = self._replica_count == 1 if leader is None else not leader.is_replicated
        else:
            waits_for_sync = self._flush == "always"
        durability = self.durability
        if durability.waits_for_sync == waits_for_sync:
            return
        durability.waits_for_sync = waits_for_sync
        if durability.is_sync_awaited:
            self.home.mark_dirty(self, 0, now)
            self.home.hurry()

    def _advance(self, now: Instant) -> None:
        """Raise the high watermark to the committed end, unless the ISR is too small: what a smaller one
        holds counts once the ISR has grown again (KIP-966).
        """
        leader = self.leader
        if leader is None or self._is_frozen:
            return
        end = self.durability.acknowledged_end
        if leader.followers:
            if not self.has_enough_in_sync:
                return
            end = leader.committed_end(end, self.log.log_end_offset, self._rules, now)
        if end > self.high_watermark:
            self.high_watermark = end
            self.purgatory.release(end)
            for one in self.standing:
                one.high_watermark_moved()

    # -- the leader's side of replication

    def follower_fetched(
        self,
        replica: NodeId,
        broker_epoch: int,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        now: Instant,
    ) -> None:
        """A replica has every record below `fetch_offset`, which the caller has checked against the epochs of
        this log. Proposes it for the ISR if it may join. Raises PartitionUnavailable for a broker that is no
        replica (UNKNOWN_LEADER_EPOCH), or for one of its earlier incarnations (NOT_LEADER_OR_FOLLOWER).
        """
        leader = self.leader
        if leader is None:
            raise PartitionUnavailable(self.error)
        progress = leader.progress_of(replica)
        if progress.is_stale(broker_epoch):
            raise PartitionUnavailable(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        progress.fetched(fetch_offset, log_start_offset, self.log.log_end_offset, broker_epoch, now)
        if replica not in leader.isr.committed and leader.may_join(
            replica, self._rules, high_watermark=self.high_watermark, log_start=self.log.log_start_offset
        ):
            leader.isr.expand(replica)
            self._noted.proposals[self] = None
        self._advance(now)
        if self.durability.is_log_start_awaited:
            self.durability.release(self.low_watermark)

    def propose(self, now: Instant) -> None:
        """The leadership proposes another ISR: have the controller asked."""
        self._noted.proposals[self] = None
        self.in_sync_changed(now)

    def in_sync_changed(self, now: Instant) -> None:
        """The ISR of the leadership has changed, or is proposed to."""
        self._choose_durability(now)
        self._advance(now)
        for one in self.standing:
            one.in_sync_changed()

    def eligibility_changed(self, now: Instant) -> None:
        """A replica outside the ISR may no longer be one that could join soon, for which the high watermark
        waits: brokers have changed, or time has passed.
        """
        self._advance(now)

    def is_awaited(self, replica: NodeId, now: Instant) -> bool:
        """Whether the high watermark waits for a replica: it is in sync, may be by now, or may join soon."""
        leader = self.leader
        return leader is not None and leader.awaits(replica, self.log.log_end_offset, self._rules, now)

    # -- the follower's side

    def append_as_follower(
        self, records: memoryview | bytearray | bytes, leader_epoch: LeaderEpoch, now: Instant
    ) -> AppendResult | None:
        """Append what the leader of `leader_epoch` has sent; None if no batch is complete. Raises
        PartitionUnavailable or RecordsRefused.
        """
        result = self.disk.append_as_follower(records, leader_epoch, now)
        if result is not None:
            self._appended(len(records), now)
            if self._node_id in self.adding:
                self.disk.traffic.reassignment_bytes_in += len(records)
        return result

    def leader_reported(self, high_watermark: Offset, log_start_offset: Offset, now: Instant) -> None:
        """Take over the high watermark and the log start offset of the leader, as far as this log goes."""
        log_end = self.log.log_end_offset
        reached = min(high_watermark, log_end)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.purgatory.release(reached)
            for one in self.standing:
                one.high_watermark_moved()
        if self.log.log_start_offset < log_start_offset <= log_end:
            self.high_watermark = max(self.high_watermark, log_start_offset)
            self.log.move_log_start(log_start_offset)
            self.home.log_start_moved(now, is_awaited=False)

    def cut_to(self, end_offset: Offset) -> None:
        """The log of this follower ends at `end_offset` now, or begins anew there: for a request that began
        before, the role has ended (`loss_of`).
        """
        if isinstance(self.role, Following):
            self.role = Following(*self.role)
        self.high_watermark = max(min(self.high_watermark, end_offset), self.log.log_start_offset)

    # -- waiting

    def park(self, until: Offset, waiter: Waiter, *, is_ours: bool = False) -> None:
        """Release `waiter` when the high watermark reaches `until`, or when the leadership ends: at once, if
        it has ended since the append. Raises PurgatoryFull, except where `is_ours` says that the broker
        itself waits.
        """
        if self.leader is None:
            waiter.released()
            return
        self.purgatory.park(until, waiter, is_ours=is_ours)
        if self.durability.is_sync_awaited:
            self.home.hurry()

    def watch(self, waiter: Waiter) -> int:
        """Release `waiter` at the next move of the high watermark, once, or when the role ends. Returns the
        key for `unwatch`. Raises PurgatoryFull.
        """
        key = self.purgatory.watch(waiter)
        if self.durability.is_sync_awaited:
            self.home.hurry()
        return key

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start offset: that of the checkpoint here, and those of the replicas on brokers in
        service.
        """
        low = self.durability.log_start
        if self.leader is not None:
            for node, progress in self.leader.followers.items():
                broker = self._rules.brokers.get(node)
                if broker is not None and not broker.is_fenced and progress.log_start_offset < low:
                    low = progress.log_start_offset
        return low

    def log_start_written(self, log_start: Offset) -> None:
        """The checkpoint on disk has `log_start`."""
        self.durability.log_start_written(log_start)
        if self.durability.is_log_start_awaited:
            self.durability.release(self.low_watermark)

    def park_until_durable(self, log_start: Offset, waiter: Waiter, now: Instant) -> None:
        """Release `waiter` when `log_start` survives a crash on every replica, or the role ends."""
        self.durability.park(log_start, waiter)
        self.home.log_start_moved(now, is_awaited=True)

    # -- append and sync

    def append(self, records: Sent, now: Instant, proof: Verification | None = None) -> AppendResult:
        """Append a client's batch as leader; `proof` is for a batch that opens a transaction. Raises
        PartitionUnavailable or RecordsRefused.
        """
        leader = self.leader
        if leader is None:
            raise PartitionUnavailable(self.error)
        result = self.disk.append(records, leader.leader_epoch, now, proof)
        self._appended(len(records), now)
        return result

    def append_own(self, batch: bytearray, leader: LeaderReplica, now: Instant) -> AppendResult:
        """Append a batch that this broker has built, under that leadership. Raises PartitionUnavailable."""
        result = self.disk.append_own(batch, leader.leader_epoch, now)
        self._appended(len(batch), now)
        return result

    def _appended(self, size: int, now: Instant) -> None:
        """Have `size` appended bytes synced in time, and acknowledge them if that needs no sync."""
        for one in self.standing:
            one.appended()
        durability = self.durability
        if durability.waits_for_sync:
            self.home.mark_dirty(self, size, now)
            if self.purgatory.heap or self.purgatory.watchers:
                self.home.hurry()
            return
        within_us = durability.appended(size)
        if within_us is not None:
            self.home.mark_dirty(self, 0, now, within_us=within_us)  # 0: no reply waits for this sync
        if self.leader is not None and self.leader.is_alone:  # else followers in sync have the records first
            self._advance(now)

    def synced(self, end_offset: Offset, now: Instant) -> None:
        """A sync has made every record below `end_offset` durable, except those truncated since it began."""
        if self.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return
        try:
            self.disk.synced(end_offset)
        except PartitionUnavailable:
            return
        self.durability.synced()
        if self.durability.waits_for_sync:
            self._advance(now)
            if self.leader is None:
                self._noted.synced[self] = None

    # -- the log directory

    def _unreadable(self, error: StorageError) -> None:
        self.home.partition_failed(self, error)

    def move_to(self, home: Home, now: Instant) -> None:
        """Use the log in its new log directory. The high watermark does not move until `moved`, because a
        crash could restore the old log.
        """
        self.home = self.disk.directory = home
        self._is_frozen = True
        home.mark_dirty(self, 0, now, within_us=0)
        home.hurry()
        home.log_start_moved(now, is_awaited=self.durability.is_log_start_awaited)

    def moved(self, now: Instant) -> None:
        """Let the high watermark move again: a crash can no longer restore the old log."""
        self._is_frozen = False
        self._advance(now)


def check_in_sync(partition: Partition, rules: InSyncRules, now: Instant) -> None:
    """Propose to remove the replicas from the ISR that lag; wait no longer for those that may not join."""
    leader = partition.leader
    if leader is None:
        return
    partition.eligibility_changed(now)
    if lagging := leader.lagging(partition.log.log_end_offset, rules, now):
        leader.isr.shrink(lagging)
        partition.propose(now)


def isr_committed(
    partition: Partition,
    leader: LeaderReplica,
    isr: tuple[NodeId, ...],
    partition_epoch: int,
    now: Instant,
) -> None:
    """The controller has committed an ISR of that leadership, perhaps as it was before."""
    if partition.leader is not leader:
        return
    if not leader.isr.commit(isr, partition_epoch) and partition_epoch == leader.isr.partition_epoch:
        leader.isr.withdraw()
    partition.in_sync_changed(now)


def isr_refused(partition: Partition, leader: LeaderReplica, now: Instant) -> None:
    """The controller has refused the proposal of that leadership; the next fetch or check may propose one."""
    if partition.leader is leader:
        leader.isr.withdraw()
        partition.in_sync_changed(now)


DEBUGGING: Final = -2
"""The replica id of a reader that compares replicas: followers serve it too."""
RoleOf = Callable[[Partition, int], LeaderReplica | Following]
"""The role in which a replica serves a reader that claims a leader epoch. Raises PartitionUnavailable."""


def any_role_of(partition: Partition, claimed_epoch: int) -> LeaderReplica | Following:
    """The role of a replica, for a reader that claims the leader epoch `claimed_epoch` (-1: none). Raises
    PartitionUnavailable, also while the log of a follower is truncated.
    """
    role = partition.role
    if role is None or (partition.leader is None and partition.log.is_truncating):
        raise PartitionUnavailable(partition.error)
    if claimed_epoch >= 0 and claimed_epoch != role.leader_epoch:
        raise claim_refused(claimed_epoch, role.leader_epoch)
    return role
