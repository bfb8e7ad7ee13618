"""Messages between simulated processes without their bytes: the network carries the numbers of messages.

A frame is the number of a request and that of its message, so that a response finds its request. Faults of
the network cut, delay and drop frames as they do bytes. What a codec does, whole clusters show.
"""

from collections.abc import Iterator
from itertools import count
from struct import Struct
from typing import NamedTuple

from sparklog.effects import Disconnect, Effect, LinkId, Loss, SendTo
from sparklog.model import Instant, Micros
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.links import Address, Answered, Links

_FRAME = Struct(">QQ")


class Post:
    """The messages of one run by number."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def framed(self, request: int, message: Message) -> bytes:
        """The frame of a message: the request itself, or the response to that request."""
        self._messages.append(message)
        return _FRAME.pack(request, len(self._messages) - 1)

    def read(self, frame: bytes) -> tuple[int, Message]:
        """The number of the request, and the message."""
        request, number = _FRAME.unpack(frame)
        return request, self._messages[number]


class Frames:
    """Collects whole frames of one connection."""

    def __init__(self) -> None:
        self._rest = b""

    def received(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete with these bytes."""
        self._rest += data
        while len(self._rest) >= _FRAME.size:
            frame, self._rest = self._rest[: _FRAME.size], self._rest[_FRAME.size :]
            yield frame


class _Pending(NamedTuple):
    then: Answered
    deadline: Micros


class _Open:
    """One open connection and its requests in flight."""

    def __init__(self, link: LinkId) -> None:
        self.id = link
        self.frames = Frames()
        self.pending: dict[int, _Pending] = {}


class PostedLinks(Links):
    """The links of a process whose messages go by post; see `Links`, whose promises it keeps."""

    def __init__(self, effects: list[Effect], post: Post) -> None:
        super().__init__(effects, "simulated")
        self._post = post
        self._requests = count(1)
        self._open_by_use: dict[tuple[Address, str], _Open] = {}
        self._open_by_id: dict[LinkId, _Open] = {}

    def ask(
        self,
        address: Address,
        purpose: str,
        request: Message,
        then: Answered,
        now: Instant,
        *,
        timeout_us: int,
        version_max: int | None = None,
    ) -> None:
        """Post a request; every version can express it."""
        use = address, purpose
        link = self._open_by_use.get(use)
        if link is None:
            link = _Open(LinkId(address, purpose, next(self._numbers)))
            self._open_by_use[use] = self._open_by_id[link.id] = link
        number = next(self._requests)
        link.pending[number] = _Pending(then, Micros(now.mono_us + timeout_us))
        self._effects.append(SendTo(link.id, [self._post.framed(number, request)]))
        self._set_deadline()

    def close(self, address: Address, purpose: str) -> None:
        """Close a link if it is open; its requests are lost (ENDED)."""
        link = self._open_by_use.get((address, purpose))
        if link is not None:
            self._give_up(link, Loss.ENDED)

    def arrived(self, link_id: LinkId, data: bytes) -> None:
        """Frames have come on a link."""
        link = self._open_by_id.get(link_id)
        for frame in () if link is None else link.frames.received(data):
            number, message = self._post.read(frame)
            assert link is not None
            self._answer(link.pending.pop(number).then, message)
        self._set_deadline()

    def lost(self, link_id: LinkId, loss: Loss) -> None:
        """A link could not be opened, or has ended."""
        link = self._open_by_id.get(link_id)
        if link is not None:
            self._forget(link, loss)

    def tick(self, now: Instant) -> None:
        """Give up the links with a request that got no response in time."""
        for link in list(self._open_by_id.values()):
            if any(one.deadline <= now.mono_us for one in link.pending.values()):
                self._give_up(link, Loss.TIMED_OUT)

    def _give_up(self, link: _Open, loss: Loss) -> None:
        self._effects.append(Disconnect(link.id, loss.value, is_at_once=True))
        self._forget(link, loss)

    def _forget(self, link: _Open, loss: Loss) -> None:
        del self._open_by_id[link.id], self._open_by_use[link.id.address, link.id.purpose]
        for one in link.pending.values():
            self._answer(one.then, loss)
        self._set_deadline()

    def _set_deadline(self) -> None:
        due = [one.deadline for link in self._open_by_id.values() for one in link.pending.values()]
        self.deadline_us = min(due, default=None)
