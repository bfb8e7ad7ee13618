"""Thousands of group members in one process: each a socket and the little state of a client, all driven by
one selector.

They speak sparklog's own codec, which costs the measuring process and not the broker. A member acts as
Kafka's clients do: it joins, syncs, gives even shares if it leads, sends heartbeats at its interval, and
joins again when it is told to; by KIP-848 it acknowledges an assignment at once. Nothing is fetched.
"""

import heapq
import itertools
import resource
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from typing import cast

from benchmarks.harness import Subject
from sparklog.errors import ErrorCode, code_of
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sparklog.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_prefixed
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message

HEARTBEAT_S = 3.0
_JOIN, _SYNC, _HEARTBEAT, _CONSUMER_HEARTBEAT, _FIND = 7, 4, 4, 1, 4
_RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def ask(connection: socket.socket, request: Message, version: int, reply: type[Message]) -> Message:
    """One request and its answer, on a blocking connection."""
    connection.sendall(framed(request, version))
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
        more = connection.recv(1 << 20)
        if not more:
            raise ConnectionError("the broker closed the connection")
        received += more
    return decode_reply(reply, version, received[4:])[1]


def framed(request: Message, version: int) -> bytes:
    """A request as it goes over the wire."""
    return b"".join(cast(list[bytes], encode_request(request, version, 7, "bench")))


def wait_for_coordinator(connection: socket.socket, *groups: str) -> None:
    """Until the coordinators of these groups serve: a real Kafka names them while they still load."""
    deadline = time.monotonic() + 60
    for group in groups:
        while True:
            answer = ask(
                connection,
                FindCoordinatorRequest(key_type=0, coordinator_keys=[group]),
                _FIND,
                FindCoordinatorResponse,
            )
            assert isinstance(answer, FindCoordinatorResponse)
            if answer.coordinators[0].error_code == 0:
                probe = ask(connection, HeartbeatRequest(group, 1, "nobody"), _HEARTBEAT, HeartbeatResponse)
                assert isinstance(probe, HeartbeatResponse)
                if probe.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    break
            if time.monotonic() > deadline:
                raise RuntimeError(f"no coordinator for {group} after a minute")
            time.sleep(0.02)


class Crowd:
    """All members, their sockets and their alarms."""

    def __init__(self, subject: Subject) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.subject = subject
        self._selector = selectors.DefaultSelector()
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.requests = 0

    def at(self, when: float, then: Callable[[], None]) -> None:
        """Have `then` run at that time of `time.monotonic`."""
        heapq.heappush(self._alarms, (when, next(self._numbers), then))

    def register(self, link: "Link") -> None:
        self._selector.register(link.socket, selectors.EVENT_READ, link)

    def unregister(self, link: "Link") -> None:
        self._selector.unregister(link.socket)

    def run(self, *, until: Callable[[], bool] | None = None, seconds: float = 120.0) -> float:
        """Serve all members until something is true, at most so long; seconds that it took. Raises
        RuntimeError if it never was.
        """
        started = time.monotonic()
        while True:
            now = time.monotonic()
            while self._alarms and self._alarms[0][0] <= now:
                heapq.heappop(self._alarms)[2]()
            if until is not None and until():
                return time.monotonic() - started
            left = started + seconds - time.monotonic()
            if left <= 0:
                if until is not None:
                    raise RuntimeError(f"{self.subject.name}: not after {seconds:.0f} s")
                return time.monotonic() - started
            wait = min(left, self._alarms[0][0] - time.monotonic()) if self._alarms else left
            for key, _ in self._selector.select(max(wait, 0)):
                key.data.readable()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()


class Link:
    """A member's connection: one request in flight, and the function that handles its reply."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self.socket = socket.create_connection((crowd.subject.host, crowd.subject.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._expected: tuple[type[Message], int, Callable[[Message], None]] | None = None
        crowd.register(self)
        self.is_closed = False

    @property
    def is_busy(self) -> bool:
        return self._expected is not None

    def send(
        self, request: Message, version: int, reply: type[Message], then: Callable[[Message], None]
    ) -> None:
        assert self._expected is None
        self._expected = reply, version, then
        self._crowd.requests += 1
        self.socket.sendall(framed(request, version))

    def readable(self) -> None:
        more = self.socket.recv(1 << 18)
        if not more:
            raise ConnectionError("the broker closed a member's connection")
        self._received += more
        size = int.from_bytes(self._received[:4]) if len(self._received) >= 4 else 1 << 40
        if len(self._received) < 4 + size:
            return
        assert self._expected is not None
        (reply, version, then), self._expected = self._expected, None
        message = decode_reply(reply, version, bytes(self._received[4:]))[1]
        self._received.clear()
        then(message)

    def close(self) -> None:
        """Go without a word, as a killed process does."""
        if not self.is_closed:
            self.is_closed = True
            self._crowd.unregister(self)
            self.socket.close()


class ClassicMember:
    """A member by the classic protocol, eager, whose leader gives even shares of `partitions`."""

    def __init__(
        self,
        crowd: Crowd,
        group: str,
        topic: str,
        partitions: int,
        *,
        session_ms: int = 45_000,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._crowd = crowd
        self._link = Link(crowd)
        self._group = group
        self._partitions = partitions
        self._session_ms = session_ms
        self._heartbeat_s = heartbeat_s
        self._protocol = JoinGroupRequestProtocol(
            "range", encode_prefixed(ConsumerProtocolSubscription([topic]), 1)
        )
        self.member_id = ""
        self.epoch = -1
        self.owned: Sequence[object] = ()
        self.is_stable = False
        self._beats = 0
        self._join()

    def die(self) -> None:
        self.is_stable = False
        self._link.close()

    def _join(self) -> None:
        self.is_stable = False
        request = JoinGroupRequest(
            self._group, self._session_ms, 60_000, self.member_id, None, "consumer", [self._protocol]
        )
        self._link.send(request, _JOIN, JoinGroupResponse, self._joined)

    def _joined(self, reply: Message) -> None:
        assert isinstance(reply, JoinGroupResponse)
        code = code_of(reply.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._join()
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self._join()
        elif code in _RETRIED or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._crowd.at(time.monotonic() + 0.05, self._join)
        elif code is ErrorCode.NONE:
            self.member_id, self.epoch = reply.member_id, reply.generation_id
            shares = []
            if reply.leader == self.member_id:
                members = sorted(member.member_id for member in reply.members)
                for index, member in enumerate(members):
                    share = range(index, self._partitions, len(members))
                    shares.append(
                        SyncGroupRequestAssignment(member, b"".join(part.to_bytes(4) for part in share))
                    )
            request = SyncGroupRequest(self._group, self.epoch, self.member_id, assignments=shares)
            self._link.send(request, _SYNC, SyncGroupResponse, self._synced)
        else:
            raise RuntimeError(f"JoinGroup answered with {code.name}")

    def _synced(self, reply: Message) -> None:
        assert isinstance(reply, SyncGroupResponse)
        code = code_of(reply.error_code)
        if code is ErrorCode.NONE:
            share = bytes(reply.assignment)
            self.owned = [int.from_bytes(share[at : at + 4]) for at in range(0, len(share), 4)]
            self.is_stable = True
            self._beat_later()
        elif code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
        ):
            self._join()
        else:
            raise RuntimeError(f"SyncGroup answered with {code.name}")

    def _beat_later(self) -> None:
        self._beats += 1
        number = self._beats
        self._crowd.at(time.monotonic() + self._heartbeat_s, lambda: self._beat(number))

    def _beat(self, number: int) -> None:
        if number == self._beats and not self._link.is_closed and not self._link.is_busy:
            self._link.send(
                HeartbeatRequest(self._group, self.epoch, self.member_id),
                _HEARTBEAT,
                HeartbeatResponse,
                self._beaten,
            )

    def _beaten(self, reply: Message) -> None:
        assert isinstance(reply, HeartbeatResponse)
        if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if reply.error_code:
            self._join()
        else:
            self._beat_later()


class ConsumerMember:
    """A member by KIP-848; it gives up and takes over assigned partitions at once."""

    def __init__(self, crowd: Crowd, group: str, topic: str, partitions: int) -> None:
        self._crowd = crowd
        self._link = Link(crowd)
        self._group = group
        self._topic = topic
        self.member_id = uuid.uuid4().hex[:22]
        self.epoch = 0
        self.owned: Sequence[object] = ()
        self._assigned: list[TopicPartitions] = []
        self.is_stable = False
        self._join()

    def die(self) -> None:
        self.is_stable = False
        self._link.close()

    def _send(self, **fields: object) -> None:
        if not self._link.is_closed:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group, member_id=self.member_id, member_epoch=self.epoch, **fields
            )  # type: ignore[arg-type]
            self._link.send(request, _CONSUMER_HEARTBEAT, ConsumerGroupHeartbeatResponse, self._beaten)

    def _beaten(self, reply: Message) -> None:
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        code = code_of(reply.error_code)
        if code in _RETRIED:
            self._crowd.at(time.monotonic() + 0.05, self._join)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._join()
        elif code is not ErrorCode.NONE:
            raise RuntimeError(f"ConsumerGroupHeartbeat answered with {code.name}: {reply.error_message}")
        else:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self._assigned = [
                    TopicPartitions(one.topic_id, list(one.partitions))
                    for one in reply.assignment.topic_partitions
                ]
                self.owned = [
                    (bytes(one.topic_id), index) for one in self._assigned for index in one.partitions
                ]
                self.is_stable = False
                self._send(topic_partitions=self._assigned)
            else:
                self.is_stable = True
                self._crowd.at(time.monotonic() + reply.heartbeat_interval_ms / 1000, self._send)

    def _join(self) -> None:
        self.epoch = 0
        self.owned = ()
        self.is_stable = False
        self._send(rebalance_timeout_ms=60_000, subscribed_topic_names=[self._topic], topic_partitions=[])


Member = ClassicMember | ConsumerMember


def are_stable(members: Sequence[Member], partitions: int) -> bool:
    """Whether they are of one generation or epoch, every partition has an owner and only one, and no member
    has less than an even share.
    """
    if not all(member.is_stable for member in members) or len({member.epoch for member in members}) != 1:
        return False
    owned = [partition for member in members for partition in member.owned]
    least = min(len(member.owned) for member in members)
    return len(owned) == partitions == len(set(owned)) and least >= partitions // len(members)
