"""The leader's state of its epoch: the synced log end of each voter, the high watermark that follows from
them, and whether a majority still fetches.
"""

from collections.abc import Iterable

from sparklog.model import ZERO_UUID, Instant, LeaderEpoch, Micros, NodeId, Offset, Uuid
from sparklog.record.control import VoterEndpoint

from .voters import VoterSet

_OBSERVER_SESSION_US = 300_000_000
_OBSERVERS_MAX = 1_000


class Replica:
    """A node that fetches: its synced log end, when it last fetched, and when it was last caught up; the
    directory of its log, which is not known before its first fetch.
    """

    __slots__ = ("caught_up_ms", "directory_id", "end_at_fetch", "end_offset", "fetched_ms", "fetched_us")

    def __init__(self, now: Instant) -> None:
        self.end_offset = Offset(0)
        self.directory_id = ZERO_UUID
        self.fetched_us = now.mono_us
        self.fetched_ms = self.caught_up_ms = -1
        self.end_at_fetch = Offset(0)

    def fetched(self, fetch_offset: Offset, leader_end: Offset, now: Instant) -> None:
        """A replica that fetches from an offset holds every record below it, durably. It is caught up as of
        now if that is the leader's end, as of its fetch before if that was the end then.
        """
        if fetch_offset >= leader_end:
            self.caught_up_ms = now.wall_ms
        elif fetch_offset >= self.end_at_fetch and self.fetched_ms >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset, self.end_at_fetch = fetch_offset, leader_end
        self.fetched_us, self.fetched_ms = now.mono_us, now.wall_ms


class Leading:
    """One leadership, of `epoch`, which begins at `epoch_start_offset`.

    Invariants: the high watermark never decreases; it never passes the offset that a majority of voters has
    synced; and it does not move until a majority has the first record of this epoch, since a record of an
    earlier epoch on a majority may still be overwritten (Raft, figure 8). The end of a replica follows its
    fetches both ways: a voter may come back with less, for records that no majority had.
    """

    def __init__(
        self,
        epoch: LeaderEpoch,
        epoch_start_offset: Offset,
        voters: VoterSet,
        *,
        own: NodeId,
        now: Instant,
    ) -> None:
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = Offset(0)
        self.own = own
        self.voters = voters
        self.followers: dict[NodeId, Replica] = {
            node: Replica(now) for node in sorted(voters.directories) if node != own
        }
        self._observers: dict[tuple[NodeId, Uuid], Replica] = {}
        self._own_end = Offset(0)
        self._tell_at_us: dict[NodeId, Micros] = dict.fromkeys(self.followers, Micros(0))

    def own_synced(self, end_offset: Offset) -> bool:
        """This node has synced everything below `end_offset`; returns whether the high watermark moved."""
        self._own_end = end_offset
        return self._advance()

    def follower_fetched(
        self, node_id: NodeId, directory_id: Uuid, fetch_offset: Offset, leader_end: Offset, now: Instant
    ) -> bool:
        """A replica has synced everything below `fetch_offset`; returns whether the high watermark moved."""
        if self.voters.has(node_id, directory_id) and node_id != self.own:
            self.followers[node_id].directory_id = directory_id
            self.followers[node_id].fetched(fetch_offset, leader_end, now)
            return self._advance()
        if node_id >= 0:
            observer = self._observers.get((node_id, directory_id)) or self._add_observer(
                (node_id, directory_id), now
            )
            observer.fetched(fetch_offset, leader_end, now)
        return False

    def _add_observer(self, key: tuple[NodeId, Uuid], now: Instant) -> Replica:
        replica = Replica(now)
        if len(self.observers(now)) < _OBSERVERS_MAX:
            self._observers[key] = replica
        return replica

    def observers(self, now: Instant) -> dict[tuple[NodeId, Uuid], Replica]:
        """The replicas that are no voters and have fetched in the last five minutes."""
        for key, replica in list(self._observers.items()):
            if replica.fetched_us + _OBSERVER_SESSION_US <= now.mono_us:
                del self._observers[key]
        return self._observers

    def follower_heard(self, node_id: NodeId, directory_id: Uuid, now: Instant) -> None:
        """A voter fetches a snapshot, which says nothing of its log."""
        if self.voters.has(node_id, directory_id) and node_id != self.own:
            self.followers[node_id].fetched_us = now.mono_us

    def voters_changed(self, voters: VoterSet, now: Instant) -> bool:
        """The record of these voters was appended, so they count from now on; returns whether the high
        watermark moved.
        """
        for node, directory in self.voters.directories.items():
            if node in self.followers and not voters.has(node, directory):
                self._observers[node, directory] = self.followers.pop(node)
                del self._tell_at_us[node]
        for node, directory in voters.directories.items():
            if node not in self.followers and node != self.own:
                observer = self._observers.pop((node, directory), None)
                self.followers[node] = Replica(now) if observer is None else observer
                self._tell_at_us[node] = Micros(0)
        self.voters = voters
        return self._advance()

    def has_caught_up(self, node_id: NodeId, directory_id: Uuid) -> bool:
        """Whether an observer has reached the end of this log once, and still fetches."""
        observer = self._observers.get((node_id, directory_id))
        return observer is not None and observer.caught_up_ms >= 0

    def _advance(self) -> bool:
        ends = {node: replica.end_offset for node, replica in self.followers.items()}
        ends[self.own] = self._own_end  # counts only if this node is a voter (KAFKA-16530)
        held = self.voters.held_by_majority(ends)
        if held <= max(self.epoch_start_offset, self.high_watermark):
            return False
        self.high_watermark = held
        return True

    def heard_us(self) -> Micros | None:
        """Since when a majority, this node included, has fetched; None if it is a majority by itself."""
        needed = self.voters.majority - (self.own in self.voters)
        if needed <= 0:
            return None
        return sorted((replica.fetched_us for replica in self.followers.values()), reverse=True)[needed - 1]

    def successors(self) -> list[NodeId]:
        """The other voters, the one with the highest log end first."""
        return sorted(self.followers, key=lambda node: (-self.followers[node].end_offset, node))

    def identified(self, own_directory_id: Uuid) -> VoterSet | str:
        """The voters with their directory ids; in words, the voter whose directory id is not known."""
        directories = dict(self.voters.directories)
        for node, directory_id in directories.items():
            if directory_id == ZERO_UUID:
                replica = self.followers.get(node)
                directories[node] = own_directory_id if replica is None else replica.directory_id
            if directories[node] == ZERO_UUID:
                return f"The directory id of voter {node} is not known: it has not fetched from this leader."
        return VoterSet(directories, self.voters.endpoints)

    def voter_told(self, node_id: NodeId, directory_id: Uuid, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """A voter of kraft.version 0 tells its directory and endpoints, which no record keeps."""
        if node_id in self.followers:
            self.followers[node_id].directory_id = directory_id
        self.voters = self.voters.moved(node_id, endpoints)

    def take_untold(self, now: Instant, every_us: int) -> list[NodeId]:
        """The voters to tell of this leadership now: each at once, and again while it does not fetch."""
        due: list[NodeId] = []
        for node, at_us in self._tell_at_us.items():
            if at_us > now.mono_us:
                continue
            quiet_us = Micros(self.followers[node].fetched_us + every_us)
            if at_us and quiet_us > now.mono_us:
                self._tell_at_us[node] = quiet_us
            else:
                self._tell_at_us[node] = Micros(now.mono_us + every_us)
                due.append(node)
        return due

    def deadline(self) -> Iterable[Micros]:
        """The times of `take_untold`."""
        return self._tell_at_us.values()
