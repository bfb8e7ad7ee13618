"""The effects of a turn, and the table from ticket to continuation.

    sync, run ─► Sync, Run among the effects ─► the outside carries them out ─► finished ─► continuation

The object that requests a sync or a job registers the continuation for its result in the same call, so a
result reaches its owner without a search, and with the type that the job returns.
"""

from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from typing import TypeVar, cast

import msgspec

from sparklog.effects import Effect, Run, Steps, Sync
from sparklog.model import Instant, SessionId, Ticket
from sparklog_server.disk.door import DiskFile, StorageError

R = TypeVar("R")


class _Continuation(msgspec.Struct, frozen=True):
    """The result of a job has the type that its `then` takes: both were given in one call."""

    then: Callable[[object, Instant], None]
    out_of_memory: Callable[[Instant], None] | None
    after: Callable[[Instant], None] | None


class Continuations:
    """The pending results. `effects` are those of the current turn, in the order requested.

    Invariant: each ticket is issued once, and its continuation is called at most once.
    """

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._awaited: dict[Ticket, _Continuation] = {}
        self._tickets = count(1)
        self._after: Callable[[Instant], None] | None = None

    def followed_by(self, after: Callable[[Instant], None]) -> "Continuations":
        """The same table; `after` runs after each continuation of a job or sync requested through it."""
        scope = copy(self)
        scope._after = after
        return scope

    def sync(
        self, files: Sequence[DiskFile], log_dir: str, then: Callable[[StorageError | None, Instant], None]
    ) -> None:
        """Make `files` durable; `then` is called with the disk's error, or None."""
        self.effects.append(Sync(self._await(then, None), files, log_dir))

    def run(
        self,
        job: Callable[[], R],
        then: Callable[[R | StorageError, Instant], None],
        *,
        is_background: bool = False,
        session: SessionId | None = None,
        memory_bytes: int = 0,
        out_of_memory: Callable[[Instant], None] | None = None,
    ) -> None:
        """Run `job` outside the event loop; `then` is called with its result, or the disk's error. See `Run`.

        A job without `out_of_memory` must not run out of memory.
        """
        ticket = self._await(then, out_of_memory)
        self.effects.append(Run(job, ticket, False, is_background, session, memory_bytes))

    def run_in_steps(
        self,
        job: Callable[[], Steps[R]],
        then: Callable[[R | StorageError, Instant], None],
        *,
        is_background: bool = False,
        session: SessionId | None = None,
        memory_bytes: int = 0,
        out_of_memory: Callable[[Instant], None] | None = None,
    ) -> None:
        """As `run`, for a job that works in steps."""
        ticket = self._await(then, out_of_memory)
        self.effects.append(Run(job, ticket, True, is_background, session, memory_bytes))

    def finished(self, ticket: Ticket, result: object, now: Instant) -> None:
        """Call the continuation of a sync (with None or StorageError) or of a job (with its result or
        exception).

        An exception other than StorageError is a bug and is raised, except a MemoryError of a job that has
        `out_of_memory`.
        """
        awaited = self._awaited.pop(ticket)
        if isinstance(result, MemoryError) and awaited.out_of_memory is not None:
            awaited.out_of_memory(now)
        elif isinstance(result, Exception) and not isinstance(result, StorageError):
            raise result
        else:
            awaited.then(result, now)
        if awaited.after is not None:
            awaited.after(now)

    def take_effects(self) -> list[Effect]:
        """The effects of the turn, which are removed; the next turn begins with none."""
        taken = self.effects[:]
        self.effects.clear()
        return taken

    def _await(
        self, then: Callable[[R, Instant], None], out_of_memory: Callable[[Instant], None] | None
    ) -> Ticket:
        ticket = Ticket(next(self._tickets))
        # The table has continuations of all types; `run` has checked that the job's result has the type of
        # this one.
        untyped = cast("Callable[[object, Instant], None]", then)
        self._awaited[ticket] = _Continuation(untyped, out_of_memory, self._after)
        return ticket
