"""The six effects: the requests of a deterministic object to its environment.

A machine of a peer or a broker returns a list of effects from every call, and its environment (daemon or
simulation) executes them in order.
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from sparklog.model import SessionId, Ticket


class Sliceable(Protocol):
    """A file of which a range can be sent without reading it: it has `pread`, and `fileno` where the system
    has descriptors.

    It stays readable after its owner has closed it until each `retain` is followed by its `release`.
    """

    def pread(self, position: int, length: int) -> bytes: ...
    def retain(self) -> None: ...
    def release(self) -> None: ...


class FileSlice(msgspec.Struct, gc=False, frozen=True):
    """The bytes `[position, position + length)` of an open file, which stays open while the slice is
    retained.

    A slice in a `Reply` is retained; the environment releases it when its bytes are sent or dropped.
    """

    file: Sliceable
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes of the slice; fewer than `length` only if the file was truncated meanwhile."""
        return self.file.pread(self.position, self.length)


Chunk = bytes | bytearray | memoryview | FileSlice
"""A piece of an encoded frame, sent as it is."""
CHUNK_BYTES: Final = 64
"""The memory of a chunk besides its bytes."""


def retain(chunks: list[Chunk]) -> int:
    """Keep the files of all slices readable until `release`; returns the bytes of memory that the chunks
    take.
    """
    size = CHUNK_BYTES * len(chunks)
    for chunk in chunks:
        if type(chunk) is FileSlice:
            chunk.file.retain()
        else:
            size += len(chunk)
    return size


def release(chunks: list[Chunk]) -> None:
    """Release the files of slices that are sent or dropped."""
    for chunk in chunks:
        if type(chunk) is FileSlice:
            chunk.file.release()


class Reply(msgspec.Struct, gc=False, frozen=True):
    """Send a whole frame (length prefix included) to a session; frames leave in the order given."""

    session: SessionId
    chunks: list[Chunk]


class LinkId(NamedTuple):
    """The id of a connection that this node opens to an address (host, port), for one purpose: responses come
    in order, so a long poll delays every later request on its link.

    `number` distinguishes the successive connections to one address for one purpose.
    """

    address: tuple[str, int]
    purpose: str
    number: int


class Loss(Enum):
    """Why a request over a link has no response."""

    REFUSED = "refused"  # no process listens at the address
    ENDED = "ended"  # the other side closed the connection
    RESET = "reset"  # the other side no longer has the connection
    UNUSABLE = "unusable"  # authentication failed, or its bytes are no response: its process may be well
    UNREACHABLE = "unreachable"  # no route to the address
    UNKNOWN_NAME = "unknown name"  # the host name has no address
    TIMED_OUT = "timed out"  # no connection, no acknowledgement of sent bytes, or no response in time
    UNSUPPORTED = "unsupported"  # the other side knows no version of the API that can express the request
    CROWDED = "crowded"  # too many requests wait on the link already; this one was not sent


class SendTo(msgspec.Struct, gc=False, frozen=True):
    """Send a whole request frame over a link; the first frame opens the connection.

    The environment reports the bytes that arrive on the link and, once, its `Loss`.
    """

    link: LinkId
    chunks: list[Chunk]


class Sync(msgspec.Struct, gc=False, frozen=True):
    """Make the files durable outside the event loop; the ticket returns through `finished` with None or the
    error.
    """

    ticket: Ticket
    files: Sequence[Any]
    log_dir: str


Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""A long job that yields before each step, so that jobs of other sessions can run in between. Its return
value is the job's result.
"""


def take_all(steps: Steps[Result]) -> Result:
    """Run all steps at once and return the result."""
    try:
        next(steps)
        while True:
            next(steps)
    except StopIteration as end:
        return cast(Result, end.value)


class Run(msgspec.Struct, frozen=True):
    """Run a job outside the event loop: a function over immutable inputs and the disk; its result returns
    through `finished`.

    A job `in_steps` returns its `Steps` when called. A job `is_background` runs on a thread of low processor
    and disk priority. `memory_bytes` is the most memory that the job allocates; the job starts when that much
    is free. A job that a `session` waits for shares the processor with the jobs of other sessions.
    """

    job: Callable[[], object]
    ticket: Ticket
    in_steps: bool = False
    is_background: bool = False
    session: SessionId | None = None
    memory_bytes: int = 0

    def work(self) -> object:
        """Run the job at once, in the simulation; exceptions of the job propagate."""
        result = self.job()
        return take_all(cast(Steps[object], result)) if self.in_steps else result


class Disconnect(msgspec.Struct, gc=False, frozen=True):
    """Close a session or a link after the pending frames are sent; or at once, which drops them."""

    session: SessionId | LinkId
    reason: str
    is_at_once: bool = False


class Halt(msgspec.Struct, gc=False, frozen=True):
    """Stop the process: continuing could damage data."""

    reason: str


Effect = Reply | SendTo | Sync | Run | Disconnect | Halt
