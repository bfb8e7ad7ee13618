"""A producer in a world of replicas: one batch in flight, sent again until it is acknowledged.

With acks=all it is idempotent, and each acknowledgement must find the batch among the committed ones. With
acks=1 a batch may be lost, and nothing is expected of it; this producer sometimes deletes committed records.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from sparklog.effects import Effect, LinkId, Loss
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, NodeId, Offset, SessionId, Ticket
from sparklog.record.batch import build_batch
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.schema import Message
from sparklog_server.simulation.post import Post, PostedLinks
from sparklog_server.simulation.replica_controller import TOPIC, TOPIC_ID
from sparklog_server.simulation.world import Machine, Violation

_PORT = 9092
_PATIENCE_US = 2_500_000
_TIMEOUT_MS = 1_500
_CRC = slice(17, 21)
_DELETES, _SOME = 0.03, 0.7
_ALL = -1
_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH)
_IMPOSSIBLE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Acked(NamedTuple):
    """An acknowledged batch: its first offset and its checksum."""

    base: Offset
    crc: int


class ReplicaProducer:
    """Sends to one partition. `acked` is called with each batch that acks=all has acknowledged."""

    def __init__(
        self,
        machine: Machine,
        random: Random,
        post: Post,
        nodes: tuple[NodeId, ...],
        partition: int,
        *,
        acks: int,
        acked: Callable[[Acked], None],
        leads: Callable[[NodeId], bool],
        until_us: int,
    ) -> None:
        """It begins no batch after `until_us` of virtual time. `leads` tells who leads by the controller: a
        former leader that was paused does not know the last batches yet.
        """
        self._machine = machine
        self._random = random
        self._post = post
        self._nodes = nodes
        self._partition = partition
        self._acks = acks
        self._acked = acked
        self._leads = leads
        self._until_us = until_us
        self._pace_us = random.choice((5_000, 30_000, 150_000))
        self._leader = random.choice(nodes)
        self._sequence = 0
        self._reached = 0  # an offset in the log
        self._batch = b""

    def start(self, now: Instant) -> list[Effect]:
        """Begin with the first batch."""
        self._effects: list[Effect] = []
        self._links = PostedLinks(self._effects, self._post)
        self._due_us: Micros | None = Micros(now.mono_us + 300_000)
        return []

    def tick(self, now: Instant) -> list[Effect]:
        """Send, now or again."""
        self._links.tick(now)
        if self._due_us is not None and self._due_us <= now.mono_us:
            self._due_us = None
            self._send(now)
        return self._turned(now)

    def deadline(self) -> Micros | None:
        """The time of the next `tick`."""
        return self._due_us if self._due_us is not None else self._links.deadline_us

    def _send(self, now: Instant) -> None:
        if self._acks > 0 and self._random.random() < _DELETES:
            offset = self._random.randint(0, self._reached) if self._random.random() < _SOME else _ALL
            asked = DeleteRecordsPartition(partition_index=self._partition, offset=offset)
            topics = [DeleteRecordsTopic(name=TOPIC, partitions=[asked])]
            self._ask(DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS), now)
            return
        if not self._batch:
            is_idempotent = self._acks < 0
            values = [b"%d" % self._random.getrandbits(30) for _ in range(self._random.randint(1, 3))]
            self._batch = bytes(
                build_batch(
                    [(None, value, (), now.wall_ms) for value in values],
                    producer_id=self._machine.node if is_idempotent else -1,
                    producer_epoch=0 if is_idempotent else -1,
                    base_sequence=self._sequence if is_idempotent else -1,
                )
            )
            self._count = len(values)
        data = PartitionProduceData(index=self._partition, records=memoryview(bytearray(self._batch)))
        topic_data = [TopicProduceData(name=TOPIC, topic_id=TOPIC_ID, partition_data=[data])]
        self._ask(ProduceRequest(acks=self._acks, timeout_ms=_TIMEOUT_MS, topic_data=topic_data), now)

    def _ask(self, request: Message, now: Instant) -> None:
        address = f"n{self._leader}", _PORT
        then = partial(self._answered, self._leader)
        self._links.ask(address, "produce", request, then, now, timeout_us=_PATIENCE_US)

    def _answered(self, asked: NodeId, answer: Message | Loss, now: Instant) -> None:
        if isinstance(answer, DeleteRecordsResponse):
            self._rest(now, self._random.randint(1_000, 100_000))
            return
        if not isinstance(answer, ProduceResponse):
            self._elsewhere(None)
            self._rest(now, self._random.randint(1_000, 100_000))
            return
        told = answer.responses[0].partition_responses[0]
        code = ErrorCode(told.error_code)
        if code in (ErrorCode.NONE, _DUPLICATE):
            self._done(told, now)
        elif code in _IMPOSSIBLE and self._leads(asked):
            raise Violation("lost", f"partition {self._partition}: {code.name} for sequence {self._sequence}")
        else:
            if code in _ELSEWHERE or code in _IMPOSSIBLE:
                leader = told.current_leader
                self._elsewhere(None if leader is None else NodeId(leader.leader_id))
            if self._acks > 0:
                self._batch = b""
            self._rest(now, self._random.randint(1_000, 50_000))

    def _done(self, told: PartitionProduceResponse, now: Instant) -> None:
        if self._acks < 0:
            crc = int.from_bytes(self._batch[_CRC], "big")
            if told.base_offset >= 0:
                self._acked(Acked(Offset(told.base_offset), crc))
            self._sequence += self._count
        self._reached = max(self._reached, told.base_offset)
        self._batch = b""
        if self._machine.world.clock.us < self._until_us:
            self._rest(now, int(self._random.expovariate(1 / self._pace_us)))

    def _elsewhere(self, leader: NodeId | None) -> None:
        known = leader is not None and leader in self._nodes and self._random.random() < 0.8
        self._leader = leader if known and leader is not None else self._random.choice(self._nodes)

    def _rest(self, now: Instant, wait_us: int) -> None:
        self._due_us = Micros(now.mono_us + wait_us)

    # -- the network's calls

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        """A response."""
        self._links.arrived(link, data)
        return self._turned(now)

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """The link is lost."""
        self._links.lost(link, loss)
        return self._turned(now)

    def _turned(self, now: Instant) -> list[Effect]:
        while self._links.has_answers:
            self._links.deliver(now)
        taken = self._effects[:]
        self._effects.clear()
        return taken

    # -- calls that a client does not get

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        """No process connects to a client."""
        raise AssertionError("a connection to a client")

    def received(self, session: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """There is no session."""
        raise AssertionError("bytes for a client")

    def disconnected(self, session: SessionId, now: Instant) -> list[Effect]:
        """There is no session."""
        raise AssertionError("a session of a client")

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """A client has no disk."""
        raise AssertionError("a job of a client")

    def begin_stop(self, now: Instant) -> list[Effect]:
        """A client ends with its run."""
        return []

    def close(self, now: Instant) -> None:
        """A client ends with its run."""
