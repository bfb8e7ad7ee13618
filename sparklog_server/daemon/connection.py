"""One connection of a session: receives into the broker's buffer and sends chunks in order.

    memory chunks   gathered: one system call for all queued chunks
    file slices     sent from the page cache, at most `Owner.turn_bytes` per turn; small ones are read into
                    memory and gathered
    cold slices     jobs first read pages that are not in the page cache, and read ahead of a connection that
                    goes on in a file (`cold_run`): the loop never waits for a disk

A connection has no buffers: an idle one is this object and its transport. Reading stops while the broker has
muted the session, while more than `Owner.unsent_bytes_max` bytes are unsent, and while the session waits to
be closed.
"""

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from sparklog.effects import CHUNK_BYTES, Chunk, FileSlice, Sliceable, release
from sparklog.model import SessionId
from sparklog_server.daemon.cold_run import JOB_BYTES, ColdRun
from sparklog_server.daemon.page_cache import is_resident, read_ahead, read_if_resident
from sparklog_server.daemon.reactor import PEER_CLOSED, READ, WRITE, Reactor
from sparklog_server.daemon.transport import Transport
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.failures import storage_error

RUNS_MAX: Final = 8
"""How many files a connection may read from the disk in turn, one per partition, with jobs ahead of it."""
RESIDENT_NS: Final = 1_000_000_000
"""Pages that were found in the page cache, or read into it, count as resident for this long. A peer that does
not read leaves a slice unsent for longer, and the kernel may drop its pages meanwhile.
"""
GATHERED_BYTES_MAX: Final = 256 << 10
# Up to here, reading a slice and gathering it costs less than a sendfile of its own.
GATHERED_SLICE_BYTES_MAX: Final = 32 << 10
GATHERED_CHUNKS_MAX: Final = min(os.sysconf("SC_IOV_MAX"), 1024)
# Fewer bytes than this in one connection are not counted: a reply that the socket takes a moment later costs
# no turn of the broker.
UNREAD_BYTES_MIN: Final = 1024


class Owner(Protocol):
    """The pump, for a connection.

    `turn_bytes` is the number of bytes of a file that one connection may send before the next has its turn.
    """

    unsent_bytes_max: int
    turn_bytes: int

    def readable(self, connection: "Connection") -> None:
        """Called when bytes may have arrived."""

    def lost(self, connection: "Connection", failure: str) -> None:
        """Called when the connection has closed."""

    def taken(self, connection: "Connection") -> None:
        """Called when the peer has read some of the bytes queued for it."""

    def sent(self, connection: "Connection") -> None:
        """Called when the last chunk has left since `sends_from_us`."""

    def unread(self, connection: "Connection", size: int, *, has_read: bool) -> None:
        """Called with the bytes of memory that wait for the peer; `has_read` if the socket has taken some
        since the last call.
        """

    def read_ahead(self, job: Callable[[], None], done: Callable[[object], None]) -> None:
        """Run a job that reads a file into the page cache."""

    def unreadable(self, file: Sliceable, error: StorageError) -> None:
        """Called when the file of a slice cannot be read."""


class OpenFile(Protocol):
    """The file of a slice in a live broker."""

    path: str
    size: int

    def fileno(self) -> int: ...
    def borrow(self) -> int: ...


class Connection:
    """A transport and its unsent chunks.

    `_waiting` begins with the first unsent byte: a partly sent chunk is replaced by its rest, and its
    `_sent_bytes` stay in memory. `_waiting_bytes` is the number of unsent bytes, `_sliced_bytes` those of
    them in slices. `_awaited` is the run whose job reads the first slice; `_runs` has the cold files that
    were read lately, at most `RUNS_MAX`. A closed connection sends and receives nothing, and has called
    `Owner.lost` exactly once.
    """

    __slots__ = (
        "_awaited",
        "_events",
        "_is_closing",
        "_is_muted",
        "_is_open",
        "_is_read_due",
        "_owner",
        "_reactor",
        "_resident_limit",
        "_resident_until_ns",
        "_runs",
        "_sent_bytes",
        "_sliced_bytes",
        "_unread_bytes",
        "_waiting",
        "_waiting_bytes",
        "active_us",
        "is_half_closed",
        "listener",
        "peer_host",
        "sends_from_us",
        "session",
        "transport",
    )

    def __init__(
        self,
        session: SessionId,
        transport: Transport,
        listener: str,
        peer_host: str,
        reactor: Reactor,
        owner: Owner,
    ) -> None:
        self.session = session
        self.listener = listener
        self.peer_host = peer_host
        # On the monotonic clock, when bytes last arrived or, while a reply is unsent, left.
        self.active_us = 0
        self.sends_from_us = 0  # since when chunks are unsent
        self.is_half_closed = False  # the peer has ended its stream while the connection was muted
        self.transport = transport
        self._reactor = reactor
        self._owner = owner
        self._waiting: list[Chunk] = []
        self._waiting_bytes = self._sliced_bytes = self._sent_bytes = 0
        self._unread_bytes = 0  # as last reported
        self._events = READ | PEER_CLOSED
        # The first waiting slice is in the page cache below this position, until this time.
        self._resident_limit = self._resident_until_ns = 0
        self._is_muted = False
        self._is_closing = False
        self._is_read_due = False
        self._awaited: ColdRun | None = None
        self._runs: dict[Sliceable, ColdRun] | None = None
        self._is_open = True
        reactor.watch(transport.fileno(), self._ready, self._events)
        if transport.has_received:
            self._read_soon()

    def queue(self, chunks: list[Chunk]) -> None:
        """Queue chunks for the next `flush`; their slices are retained, and released when they are sent."""
        if self._is_open:
            self._waiting += chunks
            for chunk in chunks:
                size = len(chunk)
                self._waiting_bytes += size
                if type(chunk) is FileSlice:
                    self._sliced_bytes += size
        else:
            release(chunks)

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""
        return self._is_open

    @property
    def is_sending(self) -> bool:
        """Whether chunks are unsent."""
        return bool(self._waiting)

    def flush(self) -> bool:
        """Send queued chunks, unless earlier bytes still wait for the socket or the disk; returns whether
        some are unsent.
        """
        if self._events & WRITE or self._awaited is not None:
            self._settle()
        else:
            self._send()
        return self._waiting != []

    def mute(self, *, is_muted: bool) -> None:
        """Stop reading, or resume it. The socket is watched on: while a client waits for its reply, no bytes
        come as a rule, and the watch need not be changed twice.
        """
        self._is_muted = is_muted
        if not is_muted:
            self._settle()

    def close_when_sent(self) -> None:
        """Receive no more, and close once everything queued has left."""
        self._is_closing = True
        self._settle()

    def close(self, failure: str = "") -> None:
        """Close at once and drop unsent chunks. `failure` is the broker's own error, if there was one."""
        if not self._is_open:
            return
        self._is_open = False
        release(self._waiting)
        self._waiting = []
        self._runs = None
        self._reactor.forget(self.transport.fileno())
        self.transport.close()
        self._owner.lost(self, failure)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._owner.taken(self)
            self._send()
        if events & READ and self._is_muted:
            self._settle()  # what has come stays in the socket
            events &= ~READ
            if not events:
                return
        if events & READ and self._is_open:
            self._owner.readable(self)
            if self._is_open and self.transport.has_received:
                self._read_soon()
        elif events == PEER_CLOSED:
            self.is_half_closed = True
            self._settle()
        elif not events & (READ | WRITE):
            # The connection is broken and muted: the kernel would report it again in every turn.
            self.close()

    def _settle(self, *, has_sent: bool = False) -> None:
        """Watch for the events that allow progress, or close if there are none."""
        if not self._is_open:
            return
        waiting = self._waiting
        if self._is_closing and not waiting:
            self.close()
            return
        events = 0
        if not (self._is_muted or self._is_closing or self._waiting_bytes > self._owner.unsent_bytes_max):
            events |= READ | PEER_CLOSED
        elif not self.is_half_closed:
            events |= PEER_CLOSED
        if waiting and self._awaited is None:
            events |= WRITE
        if events != self._events:
            self._events = events
            self._reactor.change(self.transport.fileno(), events)
        if events & READ and self.transport.has_received:
            self._read_soon()
        if waiting or self._unread_bytes:
            self._tell_unread(has_sent=has_sent)

    def _read_soon(self) -> None:
        """Receive in the next turn what the transport holds: the reactor cannot tell."""
        if not self._is_read_due:
            self._is_read_due = True
            self._reactor.post(self._read_buffered)

    def _read_buffered(self) -> None:
        self._is_read_due = False
        if self._is_open and self._events & READ:
            self._ready(READ)

    def _tell_unread(self, *, has_sent: bool) -> None:
        size = self._waiting_bytes - self._sliced_bytes + self._sent_bytes + CHUNK_BYTES * len(self._waiting)
        if size < UNREAD_BYTES_MIN:
            size = 0
        if size != self._unread_bytes or (has_sent and size):
            self._unread_bytes = size
            self._owner.unread(self, size, has_read=has_sent)

    def _send(self) -> None:
        """Send until the socket is full; the reactor calls again for the rest."""
        waiting, waiting_bytes = self._waiting, self._waiting_bytes
        try:
            if len(waiting) == 1 and type(waiting[0]) is bytes:
                # The common case, one small reply: one system call and no lists.
                sent = self.transport.send(waiting[0])
                if sent < waiting_bytes:
                    self._drop(sent)
                else:
                    waiting.clear()
                    self._waiting_bytes = self._sent_bytes = self._resident_limit = 0
            budget = self._owner.turn_bytes
            while waiting and budget > 0 and self._awaited is None:
                budget -= self._send_first()
        except BlockingIOError:
            pass
        except OSError as error:
            unread = waiting[0] if waiting and error.errno == errno.EIO else None
            self.close()  # the peer has closed the connection
            if isinstance(unread, FileSlice):
                self._owner.unreadable(unread.file, _failure(unread.file, error))
        except StorageError as error:
            self.close(str(error))
        if self.sends_from_us and not self._waiting:
            self._owner.sent(self)
        self._settle(has_sent=self._waiting_bytes < waiting_bytes)

    def _send_first(self) -> int:
        """Send the first slice or the gathered chunks; returns the part of the turn's budget that this used:
        all of it if the socket is full.
        """
        first = self._waiting[0]
        if isinstance(first, FileSlice) and first.length > GATHERED_SLICE_BYTES_MAX:
            return self._send_slice(first)
        return self._send_gathered()

    def _send_gathered(self) -> int:
        waiting = self._waiting
        gathered: list[bytes | bytearray | memoryview] = []
        size, is_slice_next = 0, False
        for index in range(min(len(waiting), GATHERED_CHUNKS_MAX)):
            chunk = waiting[index]
            if isinstance(chunk, FileSlice):
                if chunk.length > GATHERED_SLICE_BYTES_MAX:
                    is_slice_next = True
                    break
                content = self._read_small(chunk)
                if content is None:
                    break
                if len(content) < chunk.length:
                    raise _cut(chunk)
                waiting[index] = content
                self._sliced_bytes -= chunk.length
                chunk.file.release()
                chunk = content
            gathered.append(chunk)
            size += len(chunk)
            if size >= GATHERED_BYTES_MAX:
                break
        if not gathered:
            assert isinstance(waiting[0], FileSlice)
            self._await(self._begin_run(waiting[0]), waiting[0].file)
            return 0
        sent = self.transport.send_gathered(gathered, is_more_to_come=is_slice_next)
        self._drop(sent)
        return sent if sent == size else self._owner.turn_bytes

    def _read_small(self, part: FileSlice) -> bytes | bytearray | None:
        descriptor = _descriptor(part)
        if part is self._waiting[0] and self._holds(part.position + part.length):
            return os.pread(descriptor, part.length, part.position)
        return read_if_resident(descriptor, part.position, part.length)

    def _send_slice(self, first: FileSlice) -> int:
        length = min(first.length, self._owner.turn_bytes)
        descriptor = _descriptor(first)
        if not self._holds(first.position + length) and not self._is_read(first, descriptor):
            return 0
        sent = self.transport.send_slice(descriptor, first.position, length)
        if sent == 0:
            raise _cut(first)
        self._waiting_bytes -= sent
        self._sliced_bytes -= sent
        if sent == first.length:
            del self._waiting[0]
            self._resident_limit = 0
            first.file.release()
        else:
            self._waiting[0] = FileSlice(first.file, first.position + sent, first.length - sent)
        return sent if sent == length else self._owner.turn_bytes

    def _drop(self, sent: int) -> None:
        """Remove the first `sent` unsent bytes, none of which lies in a slice."""
        waiting = self._waiting
        self._waiting_bytes -= sent
        whole = 0
        for chunk in waiting:
            size = len(chunk)
            if sent < size:
                break
            sent -= size
            whole += 1
            if not sent:
                break
        self._resident_limit = 0
        if whole:
            del waiting[:whole]
            self._sent_bytes = 0
        if sent:
            self._sent_bytes += sent
            first = waiting[0]
            assert not isinstance(first, FileSlice)
            waiting[0] = memoryview(first)[sent:]

    def _is_read(self, first: FileSlice, descriptor: int) -> bool:
        """Whether the beginning of the first slice is in the page cache; if not, the connection waits for a
        job.
        """
        run = None if self._runs is None else self._runs.get(first.file)
        if run is not None and not run.continues_with(first.position, first.position + first.length):
            run = None
        size = min(first.length, JOB_BYTES)
        resident = 0 if run is None else max(0, min(run.limit - first.position, size))
        if resident and not is_resident(descriptor, first.position, resident):
            run, limit = None, None  # dropped since a job has read them
        elif resident and resident >= min(size, self._owner.turn_bytes):
            limit = first.position + resident
        else:
            limit = first.position + size if is_resident(descriptor, first.position, size) else None
        if limit is None:
            self._await(run or self._begin_run(first), first.file)
            return False
        self._hold(limit)
        if run is not None:
            run.found(limit)
            self._read_on(run, first.file)
        return True

    def _hold(self, limit: int) -> None:
        """The first slice has been found in the page cache below `limit`, or a job has just read it."""
        self._resident_limit = limit
        self._resident_until_ns = time.monotonic_ns() + RESIDENT_NS

    def _holds(self, limit: int) -> bool:
        """Whether the first slice is in the page cache below `limit`, as far as is known."""
        return limit <= self._resident_limit and time.monotonic_ns() < self._resident_until_ns

    def _begin_run(self, first: FileSlice) -> ColdRun:
        """A job reads the beginning of a slice, and more of its file only if the next slice follows it."""
        runs = self._runs = self._runs or {}
        runs.pop(first.file, None)
        if len(runs) >= RUNS_MAX:
            del runs[next(iter(runs))]
        file = cast(OpenFile, first.file)
        run = runs[first.file] = ColdRun(file, first.position, first.position + first.length)
        return run

    def _await(self, run: ColdRun, file: Sliceable) -> None:
        self._read_on(run, file)
        assert run.is_reading
        self._awaited = run

    def _read_on(self, run: ColdRun, file: Sliceable) -> None:
        """Have a job read the next range of a run into the page cache, if there is one."""
        limit = run.next_limit()
        if limit is not None:
            run.is_reading = True
            self._owner.read_ahead(
                partial(read_ahead, cast(OpenFile, file).borrow, run.limit, limit),
                partial(self._was_read, run, file, limit),
            )
        elif run.is_over and self._runs is not None and self._runs.get(file) is run:
            del self._runs[file]

    def _was_read(self, run: ColdRun, file: Sliceable, limit: int, result: object) -> None:
        run.is_reading = False
        is_awaited = self._awaited is run
        if is_awaited:
            self._awaited = None
        if isinstance(result, OSError | StorageError):
            self._read_failed(run, file, result, is_awaited=is_awaited)
        elif self._is_open:
            # Not probed again: if memory is so short that the pages are evicted already, the reads would
            # never end.
            run.found(limit)
            if self._runs is not None and self._runs.get(file) is run:
                self._read_on(run, file)
            if is_awaited:
                self._hold(limit)
                self._send()

    def _read_failed(
        self, run: ColdRun, file: Sliceable, failure: OSError | StorageError, *, is_awaited: bool
    ) -> None:
        """A job has failed. If no slice waits for it, the next one has a job of its own."""
        if self._runs is not None and self._runs.get(file) is run:
            del self._runs[file]
        if not is_awaited or not self._is_open:
            # The file of a closed connection may be closed too: a failure to open it is not a fault of the
            # disk.
            return
        self.close(f"read ahead: {failure}")
        error = failure if isinstance(failure, StorageError) else _failure(file, failure)
        if error.call == "read" and not error.is_full:
            self._owner.unreadable(file, error)


def _descriptor(part: FileSlice) -> int:
    """The descriptor; valid until control returns to the reactor."""
    return cast(OpenFile, part.file).fileno()


def _failure(file: Sliceable, error: OSError) -> StorageError:
    return storage_error(cast(OpenFile, file).path, "read", error)


def _cut(part: FileSlice) -> StorageError:
    """The error of a slice that extends beyond the end of its file: the length was sent already."""
    file = cast(OpenFile, part.file)
    return StorageError(
        file.path, "send", f"the file ends within [{part.position}, {part.position + part.length})"
    )
