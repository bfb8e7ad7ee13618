"""Answers a leader's Fetch and FetchSnapshot requests.

    Fetch ─┬─ an error, records, a divergence, a snapshot, a higher high watermark ──► answered at once
           └─ parked ── append, high watermark, end of the leadership, its time is over ──► answered

A Fetch is answered before the leader has synced the records in it: the syncs of the leader and its followers
run side by side.
"""

from collections.abc import Callable

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, OffsetAndEpoch, Uuid
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotResponse

from .durable_log import DurableLog
from .leading import Leading
from .quorum_config import QuorumConfig
from .requests import FETCH_WAIT_MS, Known, fetch_response, snapshot_response
from .snapshots import BOOTSTRAP, file_name

AnswerFetch = Callable[[FetchResponse], None]


class _Parked(msgspec.Struct, frozen=True):
    asked: FetchPartition
    bytes_max: int
    answer: AnswerFetch
    expires_us: Micros


class Serving:
    """The fetches of one leadership. Invariant: one Fetch of a replica is parked at most."""

    def __init__(self, durable: DurableLog, leading: Leading, known: Known, config: QuorumConfig) -> None:
        self._durable = durable
        self._leading = leading
        self._known = known
        self._config = config
        self._parked: dict[tuple[NodeId, Uuid], _Parked] = {}

    def fetch(
        self, request: FetchRequest, asked: FetchPartition, replica: NodeId, answer: AnswerFetch, now: Instant
    ) -> bool:
        """Answer a valid Fetch of this epoch, at once or later; returns whether the high watermark moved."""
        key = (replica, Uuid(asked.replica_directory_id))
        if (older := self._parked.pop(key, None)) is not None:
            older.answer(self._response(older, b""))
        wait_us = 1000 * min(request.max_wait_ms, FETCH_WAIT_MS)
        bytes_max = max(min(request.max_bytes, self._config.fetch_bytes_max), 1)
        parked = _Parked(asked, bytes_max, answer, Micros(now.mono_us + wait_us))
        where = self._validated(Offset(asked.fetch_offset), LeaderEpoch(asked.last_fetched_epoch))
        if where is not None:
            answer(where)
            return False
        offset, end = Offset(asked.fetch_offset), self._durable.end_offset
        has_moved = self._leading.follower_fetched(*key, offset, end, now)
        if offset < end or wait_us <= 0 or asked.high_watermark < self._leading.high_watermark:
            answer(self._response(parked, self._records(parked)))
        else:
            self._parked[key] = parked
        return has_moved

    def wake(self, *, is_moved: bool) -> None:
        """Records were appended; with `is_moved`, the high watermark moved."""
        if not self._parked:
            return
        high_watermark, end = self._leading.high_watermark, self._durable.end_offset
        for key, parked in list(self._parked.items()):
            if parked.asked.fetch_offset < end or (is_moved and parked.asked.high_watermark < high_watermark):
                del self._parked[key]
                parked.answer(self._response(parked, self._records(parked)))

    def expire(self, now: Instant) -> None:
        """Answer the fetches whose time is over."""
        for key, parked in list(self._parked.items()):
            if parked.expires_us <= now.mono_us:
                del self._parked[key]
                parked.answer(self._response(parked, b""))

    def end(self, known: Known) -> None:
        """The leadership is over."""
        parked, self._parked = self._parked, {}
        for fetch in parked.values():
            fetch.answer(fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, known))

    def deadline(self) -> Micros | None:
        """When the next parked fetch is over."""
        return min((parked.expires_us for parked in self._parked.values()), default=None)

    def _validated(self, offset: Offset, epoch: LeaderEpoch) -> FetchResponse | None:
        """The answer to a follower whose log is not a prefix of this one, None if it is."""
        durable, log_start = self._durable, self._durable.log.log_start_offset
        oldest = durable.oldest_snapshot
        if offset == 0 and oldest is None and log_start == 0:
            return None
        if oldest is not None and (
            offset < log_start
            or offset == 0
            or (offset == log_start and epoch != oldest.epoch)
            or epoch < oldest.epoch
        ):
            return self._answered(snapshot=durable.snapshots[-1])
        end = durable.end_of_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return self._answered(diverging=end)
        return None

    def _records(self, parked: _Parked) -> bytes:
        offset, end = Offset(parked.asked.fetch_offset), self._durable.end_offset
        if offset >= end:
            return b""
        # Bytes and not a slice of the file: a deposed leader cuts it, and appends other records there.
        piece = self._durable.log.read(offset, end, parked.bytes_max, at_least_one=True)
        return b"" if piece is None else piece.read()

    def _response(self, _parked: _Parked, records: bytes) -> FetchResponse:
        return self._answered(records=records)

    def _answered(
        self,
        *,
        records: bytes = b"",
        diverging: OffsetAndEpoch | None = None,
        snapshot: OffsetAndEpoch | None = None,
    ) -> FetchResponse:
        return fetch_response(
            ErrorCode.NONE,
            self._known,
            high_watermark=self._leading.high_watermark or Offset(-1),
            log_start_offset=self._durable.log.log_start_offset,
            records=records,
            diverging=diverging,
            snapshot=snapshot,
        )

    def snapshot(self, snapshot: OffsetAndEpoch, position: int, bytes_max: int) -> FetchSnapshotResponse:
        """Answer a valid FetchSnapshot of this epoch. Raises StorageError."""
        if snapshot not in self._durable.snapshots or snapshot == BOOTSTRAP:
            return snapshot_response(ErrorCode.SNAPSHOT_NOT_FOUND, self._known)
        file = self._durable.disk.open(f"{self._durable.log.directory}/{file_name(snapshot)}")
        try:
            if not 0 <= position < file.size:
                return snapshot_response(ErrorCode.POSITION_OUT_OF_RANGE, self._known)
            return snapshot_response(
                ErrorCode.NONE,
                self._known,
                snapshot=snapshot,
                size=file.size,
                position=position,
                content=file.pread(position, max(min(bytes_max, self._config.snapshot_bytes_max), 1)),
            )
        finally:
            file.close()
