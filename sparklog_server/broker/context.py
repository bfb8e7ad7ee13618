"""The parts of the broker that a handler may use: the image, this node's partitions, the quorum, and the
calls that park, propose and disconnect.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sparklog.effects import Steps
from sparklog.model import Instant, Micros, Uuid, earlier
from sparklog.wire.schema import Message
from sparklog_server.broker.authorization import Allow, Operation, Resource
from sparklog_server.broker.client_quotas import ClientQuotas
from sparklog_server.broker.coordinator_shards import CoordinatorShards
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.memory import RequestMemory
from sparklog_server.broker.producer_ids import ProducerIds
from sparklog_server.broker.quorum import Quorum
from sparklog_server.broker.reply_memory import ReplyMemory
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import Call, Encoded, Parked, Session, Wakeable
from sparklog_server.broker.sliced_requests import SlicedRequests
from sparklog_server.broker.transaction_coordinator import TransactionCoordinator
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.partitions import Partitions


class Proposed:
    """The token of a request that the controller answers; `completed` adds the parts that the handler
    refused before.
    """

    __slots__ = ("call", "completed")

    def __init__(self, call: Call, completed: Callable[[Message], Message] = lambda reply: reply) -> None:
        self.call = call
        self.completed = completed


class AutoCreation(NamedTuple):
    """The token of topics that are created because a client named them."""

    names: tuple[str, ...]


BROKER_PRINCIPAL = "User:BROKER"
"""In whose name this broker asks the controller for what it needs itself."""


class ProducerIdBlock:
    """The token of an asked-for block of producer ids."""


class CoordinatorTopic(NamedTuple):
    """The token of the creation of a coordinator's internal topic."""

    shards: CoordinatorShards


Finish = Callable[[], Message | Encoded | Parked]
"""Goes on with a request whose job has ended."""
_R = TypeVar("_R")


OWN_DISK_WAIT_MS = 30_000
"""How long a request waits at least where it waits for this broker's disk alone (Kafka's default
request.timeout.ms).

The timeout of a request bounds the wait for other replicas: in Kafka a partition with one replica
completes whatever the timeout is.
"""


class Context:
    """The broker as its handlers see it; the broker empties `disconnects` at the end of each turn.

    `jobs_running` counts the jobs of requests that have not ended.
    """

    def __init__(
        self,
        live: DynamicBrokerConfig,
        cluster_id: str,
        quorum: Quorum,
        partitions: Partitions,
        groups: CoordinatorShards,
        transactions: TransactionCoordinator,
        allow: Allow,
        newest_served: Mapping[int, int],
        continuations: Continuations,
        *,
        job_finished: Callable[[Call, Finish, Instant], None],
        receive_buffers: Sequence[bytearray],
        memory: RequestMemory,
        replies: ReplyMemory,
        quotas: ClientQuotas,
        trace: Trace,
    ) -> None:
        self.live = live
        self.newest_served = newest_served
        self.cluster_id = cluster_id
        self.broker_epoch = -1
        self.quorum = quorum
        self.partitions = partitions
        self.producer_ids: ProducerIds = transactions.producer_ids
        self.groups = groups
        self.transactions = transactions
        self.coordinators = (groups, transactions.shards)
        self.quotas = quotas
        self.auto_creations: set[str] = set()
        self.disconnects: list[tuple[Session, str]] = []
        self.paused: list[Session] = []
        self.woken: dict[Wakeable, None] = {}
        self.timers = RequestTimers()
        self.jobs_running = 0
        self.slices = SlicedRequests(self.wake, self._held, replies)
        self._memory = memory
        self._continuations = continuations
        self._job_finished = job_finished
        self._trace = trace
        self._receive_buffers = receive_buffers
        self._allow = allow

    @property
    def settings(self) -> BrokerSettings:
        """The current settings of this broker."""
        return self.live.settings

    @property
    def image(self) -> MetadataImage:
        """The published metadata."""
        return self.quorum.image

    @property
    def has_coordinated(self) -> bool:
        """Whether a coordinator has something to append, to answer or to begin."""
        transactions = self.transactions
        if transactions.has_more_due and transactions.may_go_on:
            return True
        return self.groups.runtime.has_news or transactions.shards.runtime.has_news

    def tick_shards(self, now: Instant) -> None:
        """Time has passed."""
        for shards in self.coordinators:
            shards.tick(now)
        self.transactions.resume()
        self.slices.tick(now)

    def shards_deadline(self) -> Micros | None:
        """When `tick_shards` is wanted next."""
        if (self.slices.ready and self.slices.is_due) or self.transactions.has_more_due:
            return Micros(0)
        return earlier(self.groups.runtime.deadline(), self.transactions.shards.runtime.deadline())

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic of that id."""
        return self.quorum.image.topics_by_id.get(Uuid(topic_id))

    def allow(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether the caller may do this."""
        return self._allow(call.session.principal, operation, resource, name)

    def wake(self, waiter: Wakeable) -> None:
        """Wake `waiter` in this turn, once."""
        self.woken[waiter] = None

    def run(
        self,
        call: Call,
        job: Callable[[], _R],
        finished: Callable[[_R | StorageError, Instant], Message | Encoded | Parked],
    ) -> None:
        """Run `job` beside the loop, then `finished` with its result or StorageError, within a turn; the
        call must mute its session. If the job runs out of memory, the session is closed.
        """
        then, out_of_memory = self._await(call, finished, (), None)
        self._continuations.run(job, then, session=call.session.id, out_of_memory=out_of_memory)

    def run_in_steps(
        self,
        call: Call,
        job: Callable[[], Steps[_R]],
        finished: Callable[[_R | StorageError, Instant], Message | Encoded | Parked],
        *,
        copies: Sequence[bytearray | memoryview] = (),
        memory_bytes: int = 0,
        without_memory: _R | None = None,
    ) -> None:
        """As `run`, for a job that works in steps.

        `copies` is all that the job holds of the request's bytes: the buffers they came in are reused
        meanwhile. `memory_bytes` is the most that it allocates beside them. `without_memory` is its result
        if memory runs out; if None, the session is closed then.
        """
        then, out_of_memory = self._await(call, finished, copies, without_memory)
        self._continuations.run_in_steps(
            job, then, session=call.session.id, memory_bytes=memory_bytes, out_of_memory=out_of_memory
        )

    def _await(
        self,
        call: Call,
        finished: Callable[[_R | StorageError, Instant], Message | Encoded | Parked],
        copies: Sequence[bytearray | memoryview],
        without_memory: _R | None,
    ) -> tuple[Callable[[_R | StorageError, Instant], None], Callable[[Instant], None]]:
        assert not any(self._is_received_in(copy) for copy in copies), "a job may not hold the receive buffer"
        copied_bytes = sum(map(len, copies))
        self._memory.copied_bytes += copied_bytes
        self.jobs_running += 1

        def then(result: _R | StorageError, now: Instant) -> None:
            self._memory.copied_bytes -= copied_bytes
            self.jobs_running -= 1
            self._job_finished(call, partial(finished, result, now), now)

        def out_of_memory(now: Instant) -> None:
            self._trace("job-out-of-memory", peer=call.session.peer_address, api_key=call.api_key)
            if without_memory is not None:
                then(without_memory, now)
                return
            self._memory.copied_bytes -= copied_bytes
            self.jobs_running -= 1
            self.disconnect(call.session, "a job of its request ran out of memory")

        return then, out_of_memory

    def _is_received_in(self, part: bytearray | memoryview) -> bool:
        """Whether the buffer of these bytes is one that further requests are received in."""
        content = part.obj if isinstance(part, memoryview) else part
        return any(content is buffer for buffer in self._receive_buffers)

    def kept(self, parts: Sequence[memoryview]) -> Sequence[bytearray | memoryview]:
        """Parts of a request as a job may hold them: copied, unless they are nearly all of a buffer that
        nothing else is received in.
        """
        if self._is_received_in(parts[0]) or 10 * sum(map(len, parts)) < 9 * memoryview(parts[0].obj).nbytes:
            return [bytearray(part) for part in parts]
        return parts

    def hold(self, copies: Sequence[bytearray]) -> int:
        """Count the bytes that a parked request keeps of its frame; returns their number. The receive
        buffer is reused meanwhile.
        """
        assert not any(self._is_received_in(copy) for copy in copies), (
            "nothing parked may hold the receive buffer"
        )
        size = sum(map(len, copies))
        self._memory.copied_bytes += size
        return size

    def let_go(self, size: int) -> None:
        """Count no longer the bytes that `hold` has counted."""
        self._memory.copied_bytes -= size

    def _held(self, size: int) -> None:
        """A request that is answered over several turns holds so many bytes more, or less."""
        self._memory.copied_bytes += size

    def propose(self, command: Message, token: object, principal: str, now: Instant) -> None:
        """Have the controller decide `command` of `principal`; `token` comes back with its reply once that
        is committed.
        """
        self.quorum.propose(command, token, principal, now)

    def pause(self, session: Session) -> None:
        """Run no more requests of the session until the disk has caught up."""
        if not session.is_paused:
            session.is_paused = True
            self.paused.append(session)

    def disconnect(self, session: Session, reason: str) -> None:
        """Close the session and serve nothing more that it sent."""
        self.disconnects.append((session, reason))


# Any: each handler takes the request class of its own API, which the type of the table cannot express.
Handler = Callable[[Context, Call, Any, Instant], Message | Parked]
Handlers = dict[int, tuple[Handler, type[Message]]]
"""By API key."""
