"""The durable epoch and vote, and the gate before all that a node sends.

    put ──► Sync of `quorum-state` ──► durable ──► what waited is sent, in order

A request or a response tells the epoch or the vote of its sender. It leaves once they are durable: after a
crash the node could otherwise vote twice in one epoch (KIP-595).
"""

from collections import deque
from collections.abc import Callable

from sparklog.model import Instant, Micros
from sparklog_server.disk.door import StorageError

from .durable_log import DurableLog
from .election_state import FILE_NAME, ElectionState


class ElectionStore:
    """Invariants: one write is under way at most; `pending` is empty while `is_durable`."""

    def __init__(
        self,
        state: ElectionState,
        durable: DurableLog,
        *,
        stored: Callable[[Instant], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        self.state = state
        self.is_durable = True
        self.is_writing = False
        self.began_us: Micros | None = None
        self._durable = durable
        self._stored = stored
        self._failed = failed
        self._pending: deque[Callable[[], None]] = deque()

    def put(self, state: ElectionState) -> None:
        """Replace the state; the node acts on it at once, and is heard once `write` has made it durable."""
        self.state = state
        self.is_durable = False

    def when_durable(self, send: Callable[[], None]) -> None:
        """Call `send` when the state is durable, at once if it is."""
        if self.is_durable:
            send()
        else:
            self._pending.append(send)

    def write(self, now: Instant) -> None:
        """Begin the write of a state that is not durable, also after a full disk has refused it."""
        if self.is_durable or self.is_writing or self._durable.is_dead:
            return
        state, durable = self.state, self._durable
        path = f"{durable.log.directory}/{FILE_NAME}"
        try:
            file = durable.written(lambda: durable.disk.replace(path, state.render()))
        except StorageError as error:
            durable.refused(error, now)
            return
        self.is_writing = True
        self.began_us = now.mono_us
        durable.continuations.sync(
            [file], durable.log_dir, lambda error, then: self._written(state, error, then)
        )

    def _written(self, state: ElectionState, error: StorageError | None, now: Instant) -> None:
        self.is_writing = False
        self.began_us = None
        if self._durable.is_dead:
            return
        if error is not None:
            self._failed(error)
            return
        if state != self.state:
            self.write(now)
            return
        self.is_durable = True
        self._stored(now)
        while self._pending and self.is_durable:
            self._pending.popleft()()
