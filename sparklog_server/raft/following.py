"""The log of a node that does not lead: it fetches, appends, syncs, and then fetches again.

    FETCH ──records──► append ──► sync ──┐
      ▲ ├────diverging──► truncate ──────┤       a Fetch is the word of this node that everything below its
      │ └────snapshot──► FETCH_SNAPSHOT… ┤       fetch offset is durable: so it syncs, then it fetches
      │                  check, install ─┤
      └──────────────────────────────────┘

An observer whose leader does not answer asks the voters and the bootstrap servers in turn.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros, Offset, OffsetAndEpoch
from sparklog.record.batch import Buffer
from sparklog.record.control import ControlMessage
from sparklog.wire.messages.fetch import PartitionData
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotResponsePartitionSnapshot
from sparklog.wire.schema import Message
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.log.partition_log import RecordsRefused

from .durable_log import DurableLog, Trace
from .peers import InFlight, Peer
from .quorum_config import QuorumConfig
from .requests import Myself, fetch_request, snapshot_request
from .snapshots import Snapshot, SnapshotDamaged, check_downloaded, partial_path

_REFUSED_RETRY_US = 100_000


class Host(Protocol):
    """What a follower needs of its node."""

    @property
    def epoch(self) -> LeaderEpoch: ...
    @property
    def high_watermark(self) -> Offset: ...
    def ask(self, peer: Peer, request: Message, now: Instant) -> int | None: ...
    def appended(self, batches: Buffer, now: Instant) -> None: ...
    def committed(self, leaders_high_watermark: Offset, now: Instant) -> None: ...
    def truncated(self, end_offset: Offset, now: Instant) -> None: ...
    def replaced(self, snapshot: OffsetAndEpoch, control: Sequence[ControlMessage], now: Instant) -> None: ...
    def diverged(self, reason: str) -> None: ...


class _Download:
    """A snapshot that is fetched by position."""

    def __init__(self, snapshot: OffsetAndEpoch, file: DiskFile) -> None:
        self.id = snapshot
        self.file = file
        self.is_checking = False


class Following:
    """Invariants: one Fetch or FetchSnapshot is in flight at most, and its response counts only if it is that
    of `correlation`; nothing is fetched before every record here is durable.
    """

    def __init__(
        self,
        durable: DurableLog,
        me: Myself,
        in_flight: InFlight,
        host: Host,
        config: QuorumConfig,
        trace: Trace,
    ) -> None:
        self.peer: Peer | None = None  # the node to fetch from
        self.has_fetched = False  # from this leader, which is not known to be gone since
        self._durable = durable
        self._me = me
        self._in_flight = in_flight
        self._host = host
        self._config = config
        self._trace = trace
        self._correlation = 0
        self._retry_at_us: Micros | None = None
        self._download: _Download | None = None

    def begin(self, peer: Peer | None) -> None:
        """Fetch from a node from now on, None for none; responses of others no longer count."""
        self.peer = peer
        self.has_fetched = False
        self._correlation = 0
        self._retry_at_us = None
        self._drop_download()

    def retry(self, peer: Peer | None, now: Instant, delay_us: int) -> None:
        """Fetch again shortly, from this node."""
        self.peer = peer
        self._correlation = 0
        self._retry_at_us = Micros(now.mono_us + delay_us)

    def is_current(self, correlation: int) -> bool:
        """Whether this is the request in flight."""
        return correlation == self._correlation

    def poll(self, now: Instant) -> None:
        """Send the next request if it is time."""
        durable = self._durable
        if self.peer is None or durable.is_dead or durable.retry_at_us is not None:
            return
        if self._awaits_disk:
            durable.flush(now)
            return
        if self._retry_at_us is not None and self._retry_at_us > now.mono_us:
            return
        if self._correlation in self._in_flight:
            return
        epoch, download = self._host.epoch, self._download
        request: Message
        if download is None:
            end = OffsetAndEpoch(durable.end_offset, durable.last_epoch)
            request = fetch_request(
                self._me, epoch, end, self._host.high_watermark, self._config.fetch_bytes_max
            )
        elif download.is_checking:
            return
        else:
            limit = self._config.snapshot_bytes_max
            request = snapshot_request(self._me, epoch, download.id, download.file.size, limit)
        self._retry_at_us = None
        self._correlation = self._host.ask(self.peer, request, now) or 0

    def deadline(self) -> Micros | None:
        """When `poll` is to be called, if nothing happens before."""
        if self.peer is None or self._awaits_disk or self._durable.retry_at_us is not None:
            return None
        return self._retry_at_us

    @property
    def _awaits_disk(self) -> bool:
        """Whether a sync or a cut comes first, whose end polls."""
        return self._durable.is_cutting or not self._durable.is_synced

    def fetched(self, data: PartitionData, now: Instant) -> None:
        """The leader answered a Fetch without an error."""
        self._correlation = 0
        self.has_fetched = True
        if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
            diverging = data.diverging_epoch
            self._truncate(OffsetAndEpoch(Offset(diverging.end_offset), LeaderEpoch(diverging.epoch)), now)
            return
        if data.snapshot_id is not None and data.snapshot_id.epoch >= 0 and data.snapshot_id.end_offset > 0:
            found = data.snapshot_id
            self._guarded(
                partial(
                    self._begin_download, OffsetAndEpoch(Offset(found.end_offset), LeaderEpoch(found.epoch))
                ),
                now,
            )
            return
        records = data.records
        if isinstance(records, (bytes, bytearray, memoryview)) and len(records):
            self._guarded(partial(self._append, bytes(records), now), now)
        self._host.committed(Offset(data.high_watermark), now)
        self.poll(now)

    def _append(self, records: bytes, now: Instant) -> None:
        batches = self._durable.append_fetched(records, self._host.epoch, now)
        if batches is not None:
            self._host.appended(batches, now)

    def _truncate(self, diverging: OffsetAndEpoch, now: Instant) -> None:
        durable = self._durable
        own = durable.end_of_epoch(diverging.epoch)
        end = min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
        committed = max(self._host.high_watermark, *(snapshot.offset for snapshot in durable.snapshots), 0)
        if end < committed:
            self._host.diverged(
                f"the leader asks to truncate the log to offset {end}, but all below {committed} is committed"
            )
        elif end >= durable.end_offset:
            self._trace("raft-divergence-unclear", epoch=diverging.epoch, end_offset=diverging.offset)
            self.retry(self.peer, now, _REFUSED_RETRY_US)
        else:
            self._trace("raft-truncated", end_offset=end, log_end_offset=durable.end_offset)
            self._host.truncated(end, now)
            durable.truncate(end)

    def _guarded(self, write: Callable[[], None], now: Instant) -> None:
        """Write what the leader sent; if the log refuses it, or the disk is full, it is fetched again."""
        try:
            write()
        except RecordsRefused as refused:
            self._trace("raft-records-refused", reason=str(refused))
            self.retry(self.peer, now, _REFUSED_RETRY_US)
        except StorageError as error:
            self._durable.refused(error, now)

    # -- snapshots

    def _begin_download(self, snapshot: OffsetAndEpoch) -> None:
        self._drop_download()
        path = partial_path(self._durable.log.directory, snapshot)
        self._durable.disk.remove(path)
        self._download = _Download(snapshot, self._durable.disk.open(path, create=True))

    def _drop_download(self) -> None:
        if self._download is not None and not self._download.is_checking:
            self._download.file.close()
        self._download = None

    def snapshot_fetched(self, data: FetchSnapshotResponsePartitionSnapshot, now: Instant) -> None:
        """The leader answered a FetchSnapshot."""
        self._correlation = 0
        download = self._download
        if download is None:
            return
        found = OffsetAndEpoch(Offset(data.snapshot_id.end_offset), LeaderEpoch(data.snapshot_id.epoch))
        content = data.unaligned_records
        if (
            data.error_code != ErrorCode.NONE
            or found != download.id
            or data.position != download.file.size
            or not isinstance(content, (bytes, bytearray, memoryview))
            or not len(content)
        ):
            self._drop_download()  # the leader has removed it, or another process leads: ask again
            self.retry(self.peer, now, self._config.retry_us)
            return
        self.has_fetched = True
        written = bytes(content)
        self._guarded(lambda: self._store(download, written, data.size), now)
        self.poll(now)

    def _store(self, download: _Download, content: bytes, size: int) -> None:
        self._durable.written(lambda: download.file.append(content))
        if download.file.size < size:
            return
        download.is_checking = True
        self._durable.continuations.run(
            partial(_checked, download.file, self._durable, download.id),
            partial(self._install, download, self._host.epoch),
        )

    def _install(
        self, download: _Download, epoch: LeaderEpoch, found: Snapshot | StorageError, now: Instant
    ) -> None:
        if self._download is not download or epoch != self._host.epoch or self._durable.is_dead:
            return
        self._download = None
        if isinstance(found, SnapshotDamaged):
            self._trace("metadata-snapshot-damaged", path=found.path, reason=found.reason)
            self.retry(self.peer, now, _REFUSED_RETRY_US)
        elif isinstance(found, StorageError):
            self._durable.refused(found, now)
        else:
            self._trace("raft-snapshot-installed", end_offset=found.id.offset, epoch=found.id.epoch)
            self._durable.install(found.id, partial(self._host.replaced, found.id, found.control), now)


def _checked(file: DiskFile, durable: DurableLog, snapshot: OffsetAndEpoch) -> Snapshot:
    file.close()
    return check_downloaded(durable.disk, durable.log.directory, snapshot)
