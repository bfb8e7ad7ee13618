"""A broker reduced to its replicas: partitions, fetchers, fetch sessions and the handlers of Produce, Fetch
and ListOffsets. It has no quorum, coordinators, quotas or codecs; a model is its controller.
"""

from collections.abc import Callable
from typing import Any

from sparklog.effects import Disconnect, Effect, FileSlice, LinkId, Loss, Reply, take_all
from sparklog.model import Instant, Micros, NodeId, SessionId, Ticket, Uuid, earlier
from sparklog.wire.frame import Framer
from sparklog.wire.messages.alter_partition import AlterPartitionRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationResponse
from sparklog.wire.messages.delete_records import DeleteRecordsRequest
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.schema import Message
from sparklog_server.agenda import Agenda
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.cluster.broker_lifecycle import BrokerEpoch
from sparklog_server.broker.cluster.links import Address
from sparklog_server.broker.cluster.replication import Replication
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.handlers.delete_records import delete_records
from sparklog_server.broker.handlers.offsets import list_offsets
from sparklog_server.broker.handlers.produce import produce
from sparklog_server.broker.handlers.replica_fetch import fetch_as_replica
from sparklog_server.broker.opening.directories import recover_logs, registration
from sparklog_server.broker.opening.local_partitions import follow, open_partitions
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import (
    Answer,
    AnsweredInSteps,
    Call,
    Parked,
    Session,
    is_in_steps,
)
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.metadata.image import MetadataImage, difference
from sparklog_server.replica.replica_manager import ReplicaManager
from sparklog_server.replica.sessions import ReplicaSessions
from sparklog_server.replica.throttle import Throttles
from sparklog_server.simulation.post import Frames, Post, PostedLinks
from sparklog_server.simulation.replica_controller import ModelController
from sparklog_server.simulation.world import Machine

LOG_DIR = "/data"
PORT = 9092
_HANDLERS: dict[type[Message], tuple[Callable[..., Answer | AnsweredInSteps], int, int]] = {
    FetchRequest: (fetch_as_replica, 1, 17),
    ListOffsetsRequest: (list_offsets, 2, 10),
    ProduceRequest: (produce, 0, 12),
    DeleteRecordsRequest: (delete_records, 21, 2),
}
"""By request: its handler, API key and version."""
_HEARTBEAT_US = 200_000


class _Context:
    """The parts of `Context` that replicas and the handlers of this process use."""

    def __init__(
        self,
        process: "ReplicaProcess",
        live: DynamicBrokerConfig,
        partitions: ReplicaManager,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._process = process
        self.live = live
        self.partitions = partitions
        self.broker_epoch = BrokerEpoch()
        self.links = process.links
        self.suspects: dict[NodeId, Micros] = {}
        self.woken: dict[Any, None] = {}
        self.timers = RequestTimers()
        self.disconnect = process.disconnect
        self.replica_sessions = ReplicaSessions(entropy)
        self.throttles: Throttles | None = None

    @property
    def settings(self) -> BrokerSettings:
        """The current settings of this node."""
        return self.live.settings

    @property
    def image(self) -> MetadataImage:
        """The metadata that this node has got."""
        return self._process.image

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic of that id."""
        return self.image.topics_by_id.get(Uuid(topic_id))

    def address_of(self, node: NodeId) -> Address | None:
        """The address of a broker that is not fenced."""
        broker = self.image.brokers.get(node)
        return None if broker is None or broker.is_fenced else (f"n{node}", PORT)

    def allow(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        """Everything is allowed."""
        return True

    def pause(self, session: Session) -> None:
        """Nothing is paused: producers wait for their responses."""

    def propose(
        self,
        command: Message,
        reply_type: type[Any],
        then: Callable[[Any, Instant], None],
        now: Instant,
        caller: Call | None = None,
    ) -> None:
        """Ask the model."""
        assert isinstance(command, AlterPartitionRequest)
        self._process.controller.alter(self._process.machine, command, then)


class ReplicaProcess:
    """One process. `image` is the newest metadata that it has got."""

    def __init__(
        self,
        machine: Machine,
        settings: BrokerSettings,
        cluster_id: str,
        post: Post,
        controller: ModelController,
    ) -> None:
        self.machine = machine
        self.controller = controller
        self.image = MetadataImage()
        self._followed = MetadataImage()  # the newest that the partitions have
        self._settings = settings
        self._cluster_id = cluster_id
        self._post = post
        self._sessions: dict[SessionId, tuple[Session, Frames]] = {}
        self._calls: dict[Call, None] = {}  # parked
        self._beat_us: Micros | None = None
        self.is_stopped = False

    def start(self, now: Instant) -> list[Effect]:
        """Recover the logs and register."""
        machine, settings = self.machine, self._settings
        self._continuations, self._agenda = Continuations(), Agenda()
        self._effects = self._continuations.effects
        self.links = PostedLinks(self._effects, self._post)
        live = DynamicBrokerConfig(settings, self._trace)
        log_dir = LogDir.claim(
            machine.disk,
            LOG_DIR,
            node_id=machine.node,
            cluster_id=self._cluster_id,
            entropy=machine.random.randbytes,
        )
        take_all(recover_logs(settings, machine.disk, log_dir, self._trace, now))
        self.partitions = open_partitions(
            live,
            machine.disk,
            [log_dir],
            self._continuations,
            self._agenda,
            failed=[],
            entropy=machine.random.randbytes,
            trace=self._trace,
        )
        self._live = live
        self.context = _Context(self, live, self.partitions, machine.random.randbytes)
        self.replication = Replication(self.context, self._trace)
        incarnation_id = Uuid(machine.random.randbytes(16))
        request = registration(settings, [log_dir], self._cluster_id, incarnation_id=incarnation_id)
        self._incarnation_id = Uuid(request.incarnation_id)
        log_dir.registers(self._incarnation_id)
        self.controller.register(machine, request, self._registered)
        return self._end_of_turn(now)

    def _registered(self, reply: BrokerRegistrationResponse, now: Instant) -> None:
        if reply.error_code:
            return
        self.context.broker_epoch.value = reply.broker_epoch
        for directory in self.partitions.directories:
            directory.log_dir.registered(reply.broker_epoch)
        self._beat_us = now.mono_us

    # -- metadata

    def published(self, image: MetadataImage, now: Instant) -> list[Effect]:
        """Newer metadata have come."""
        if image.offset > self.image.offset and not self.is_stopped:
            self.image = image
            known = image.brokers.get(self.machine.node)
            if known is None or known.incarnation_id != self._incarnation_id:
                return []  # as LogRecovery
            delta = difference(self._followed, image)
            self._followed = image
            led = [one for one in self.partitions if one.leader is not None]
            leaders = [(one, one.leader, len(one.purgatory.heap)) for one in led]
            follow(self._live, self.partitions, None, delta, now)
            self.partitions.led.clear()  # no coordinator loads anything
            if delta.brokers_changed or delta.configs_changed:
                self.replication.published(delta, now)
            for one, leader, parked in leaders:
                if one.leader is not leader and leader is not None:
                    self.controller.reached[f"resigned-while-{leader.isr.state.value}"] += 1
                    self.controller.reached["resigned-with-parked-requests"] += parked > 0
            self._agenda.has_deadlines = True
        return self._end_of_turn(now)

    def decided(self, then: Callable[[Any, Instant], None], reply: Message, now: Instant) -> list[Effect]:
        """The controller has answered."""
        if not self.is_stopped:
            then(reply, now)
        return self._end_of_turn(now)

    # -- requests of other processes

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        """A machine has connected."""
        framer = Framer(frame_bytes_max=1, shared=bytearray(1))
        self._sessions[session] = Session(session, framer, listener="PLAINTEXT", peer_address=""), Frames()
        return []

    def received(self, session_id: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """Requests of a session."""
        session, frames = self._sessions.get(session_id, (None, Frames()))
        for frame in () if session is None else frames.received(data):
            number, request = self._post.read(frame)
            handler, api_key, version = _HANDLERS[type(request)]
            assert session is not None
            call = Call(session, api_key, version, number, None, session.principal)
            self._calls[call] = None
            answer = handler(self.context, call, request, now)
            self._answer(call, _taken(answer, now) if is_in_steps(answer) else answer)
        return self._end_of_turn(now)

    def _answer(self, call: Call, answer: Message | Parked | None) -> None:
        """Send an answer, after those of all earlier requests of the session."""
        owed = call.session.owed
        if call not in owed and answer is not Parked.SILENT:
            owed.append(call)
        if not isinstance(answer, Message):
            return
        for topic in answer.responses if isinstance(answer, FetchResponse) else ():
            for data in topic.partitions:
                if isinstance(data.records, FileSlice):
                    data.records = memoryview(data.records.read())
        call.answer = [self._post.framed(call.correlation_id, answer)]
        while owed and (chunks := owed[0].answer) is not None:
            del self._calls[owed.popleft()]
            self._effects.append(Reply(call.session.id, chunks))

    def disconnect(self, session: Session, reason: str) -> None:
        """Close a session."""
        self._effects.append(Disconnect(session.id, reason, is_at_once=True))
        self._ended(session)

    def disconnected(self, session_id: SessionId, now: Instant) -> list[Effect]:
        """The session has ended."""
        if (known := self._sessions.get(session_id)) is not None:
            self._ended(known[0])
        return self._end_of_turn(now)

    def _ended(self, session: Session) -> None:
        del self._sessions[session.id]
        session.is_closing = True
        for call in [one for one in self._calls if one.session is session]:
            del self._calls[call]
            if call.waiting is not None:
                call.waiting.abandoned()

    # -- responses to this process

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        """Responses on a link."""
        self.links.arrived(link, data)
        return self._end_of_turn(now)

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """The link is lost."""
        self.links.lost(link, loss)
        return self._end_of_turn(now)

    # -- results and time

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """A sync or a job has ended."""
        self._continuations.finished(ticket, result, now)
        self._agenda.has_deadlines = True
        return self._end_of_turn(now)

    def tick(self, now: Instant) -> list[Effect]:
        """The deadline has passed."""
        for waiting in self.context.timers.expired(now):
            self._answer(waiting.call, waiting.expired(now))
        self.partitions.tick(now)
        self.replication.tick(now)
        self.links.tick(now)
        if self._beat_us is not None and self._beat_us <= now.mono_us:
            self._beat_us = Micros(now.mono_us + _HEARTBEAT_US)
            self.controller.beat(self.machine, self.context.broker_epoch.value, self.image.offset)
        self._agenda.has_syncs = self._agenda.has_deadlines = True
        return self._end_of_turn(now)

    def deadline(self) -> Micros | None:
        """The time of the next `tick`."""
        due_us = earlier(self.partitions.deadline(), self.links.deadline_us)
        due_us = earlier(due_us, self._beat_us)
        return earlier(earlier(due_us, self.context.timers.deadline()), self.replication.deadline_us)

    def begin_stop(self, now: Instant) -> list[Effect]:
        """Stop serving, and make everything durable."""
        self.is_stopped = True
        self.replication.close()
        self._beat_us = None
        for session, _ in list(self._sessions.values()):
            self.disconnect(session, "the broker stops")
        self.partitions.stop()
        return self._end_of_turn(now)

    def close(self, now: Instant) -> None:
        """Close the logs cleanly if all is done."""
        if self.partitions.is_quiet:
            self.partitions.close(now)

    def _end_of_turn(self, now: Instant) -> list[Effect]:
        context, agenda, partitions = self.context, self._agenda, self.partitions
        while True:
            if context.woken:
                woken = list(context.woken)
                context.woken.clear()
                for waiting in woken:
                    call = waiting.call
                    if call.answer is None and not call.session.is_closing:
                        self._answer(call, waiting.woken(now))
            elif self.links.has_answers:
                self.links.deliver(now)
            elif self.replication.has_work and not self.is_stopped:
                self.replication.turn(now)
            else:
                if self.is_stopped:
                    partitions.hurry()
                if agenda.has_syncs:
                    agenda.has_syncs = False
                    partitions.begin_due_syncs(now)
                if not context.woken:
                    break
        return self._continuations.take_effects()

    def _trace(self, event: str, **fields: object) -> None:
        self.controller.reached[event] += 1
        self.machine.world.told(self.machine, event, fields)


def _taken(steps: AnsweredInSteps, now: Instant) -> Answer:
    """The answer, after all steps at once: requests here are small."""
    try:
        next(steps)
        while True:
            steps.send(now)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
