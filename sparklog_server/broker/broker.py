"""The broker: one deterministic object. Bytes and time go in, effects come out.

    receive ─► Framer ─► header ─► HANDLERS[api] ─► answer now ─────────────► Reply
                                        │                                       ▲
                                        └─► Parked ─► high watermark, commit, timer ─► woken, expired

Each call from outside is a turn. At its end the broker answers requests whose wait is over, resumes muted
sessions, and begins the syncs that are due. Nothing here blocks, reads a clock or calls back, except that
`open` reads the metadata log, and all logs of a node that is alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from sparklog.effects import (
    CHUNK_BYTES,
    Chunk,
    Disconnect,
    Effect,
    LinkId,
    Loss,
    Reply,
    Sliceable,
    release,
    retain,
)
from sparklog.errors import DecodeError
from sparklog.model import Instant, Micros, SessionId, Ticket, Uuid, earlier
from sparklog.wire.api_keys import API_VERSIONS
from sparklog.wire.frame import RECEIVE_BUFFER_BYTES, Framer, spare_buffers
from sparklog.wire.header import UnsupportedVersion, encode_reply
from sparklog.wire.schema import Message
from sparklog_server.broker.authorization import Allow, allow_all
from sparklog_server.broker.broker_lifecycle import BrokerLifecycle
from sparklog_server.broker.client_quotas import ClientQuotas, WorkClock
from sparklog_server.broker.context import Context, Handlers
from sparklog_server.broker.coordinator_requests import settle
from sparklog_server.broker.directories import close_without_logs
from sparklog_server.broker.dispatch import HANDLERS, newest_served
from sparklog_server.broker.ending import marker_writer
from sparklog_server.broker.handlers.api_versions import of_unsupported_version
from sparklog_server.broker.local_partitions import follow
from sparklog_server.broker.memory import RequestMemory
from sparklog_server.broker.opening import Parts, open_parts
from sparklog_server.broker.reply_sender import SESSION_TURN_BYTES, TURN_BYTES, ReplySender
from sparklog_server.broker.request_jobs import Finish, RequestJobs
from sparklog_server.broker.requests import NotServed, read_request
from sparklog_server.broker.session import (
    FLOWING,
    MUTING_SILENT,
    SILENT,
    Call,
    Encoded,
    Parked,
    Session,
    first_frame_bytes_max,
)
from sparklog_server.broker.transaction_coordinator import TransactionCoordinator
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.disks import unreadable

if TYPE_CHECKING:
    from sparklog_server.broker.controller_registration import ControllerRegistration


class Broker:
    """One node of a cluster.

    Invariants: a session's answers leave in the order of its requests; a muted session runs no request;
    every effect of a turn is returned by the call that began it. A simulation plants faults by a subclass
    with other `handlers` or shards.
    """

    handlers, transactions = HANDLERS, TransactionCoordinator

    def __init__(
        self,
        parts: Parts,
        *,
        allow: Allow,
        receive_buffer: bytearray,
        work_clock: WorkClock,
        trace: Trace,
    ) -> None:
        settings = parts.live.settings
        self.settings = settings
        self.quotas = ClientQuotas(settings, work_clock)
        self.is_stopping = False
        self.is_stopped = False
        self._live = parts.live
        self._trace = trace
        self._receive_buffer = receive_buffer
        self._spare_buffers = spare_buffers()
        self._sessions: dict[SessionId, Session] = {}
        self._resumable: list[Session] = []
        self._mute_changes: list[tuple[SessionId, bool]] = []
        self._continuations = parts.continuations
        self._effects = self._continuations.effects
        self._agenda = parts.agenda
        self._controller_epoch = -1  # in which the broker last reported
        self._others_us: Micros | None = None  # the earliest deadline of partitions and coordinators
        self._memory = RequestMemory(settings.connections.queued_max_request_bytes)
        self._replying = ReplySender(settings.connections.sparklog_reply_memory_max, self._mute)
        self._in_flight_max = settings.connections.sparklog_session_in_flight_max
        self._partitions = parts.partitions
        self._quorum = parts.quorum
        self._links = parts.links
        self._registration = parts.registration
        self._metadata_dir = parts.metadata_dir
        self._recovery = parts.recovery
        self._of_controllers = _apis_of_controllers() if settings.controller_listener_names else ({}, {})
        self._context = Context(
            parts.live,
            parts.cluster_id,
            parts.quorum,
            parts.partitions,
            parts.groups,
            parts.transactions,
            parts.links,
            allow,
            newest_served(settings),
            RequestJobs(
                parts.continuations,
                self._memory,
                (receive_buffer, *self._spare_buffers),
                finished=self._job_finished,
                disconnect=self._close,
                trace=trace,
            ),
            answer=self._answer,
            disconnect=self._close,
            memory=self._memory,
            replies=self._replying.memory,
            quotas=self.quotas,
        )
        if not parts.quorum.is_alone:
            from sparklog_server.broker.controller_link import ControllerLink  # a node alone needs none

            session_us = settings.broker_session_timeout_ms * 1000
            self._context.controllers = ControllerLink(
                parts.quorum, parts.links, trace, heartbeat_us=session_us
            )
        self._controller_registration = _controller_registration(self._context, parts)
        parts.transactions.write = marker_writer(self._context)
        self._replying.hold_up = self._context.slices.unread
        self._standing = BrokerLifecycle(
            self._context, parts.failed_directories, self._agenda, self._effects, trace
        )

    @classmethod
    def open(
        cls,
        settings: BrokerSettings,
        disk: Disk,
        *,
        entropy: Callable[[int], bytes],
        trace: Trace,
        now: Instant,
        allow: Allow = allow_all,
        receive_buffer: bytearray | None = None,
        work_clock: WorkClock = lambda: 0,
    ) -> Self:
        """Open the directories and the metadata log, and the data logs of a node that is alone; `start` then
        registers. Blocks. Raises StorageError or DirectoryRefused.
        """
        parts = open_parts(
            settings, disk, transactions=cls.transactions, allow=allow, entropy=entropy, trace=trace, now=now
        )
        if receive_buffer is None:
            receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        return cls(parts, allow=allow, receive_buffer=receive_buffer, work_clock=work_clock, trace=trace)

    # -- lifecycle

    @property
    def is_ready(self) -> bool:
        """Whether Metadata lists this broker: it is registered, not fenced, and not stopping."""
        return self._standing.is_ready and not self.is_stopping

    def start(self, now: Instant) -> list[Effect]:
        """The first turn: register with the controller, and recover the logs that are not open yet."""
        self._standing.begin(self._registration, now, is_recovered=self._recovery is None)
        if self._recovery is None:
            self._partitions.retention.begin(now)
        else:
            self._recovery.begin(self._recovered, now)
        return self._end_of_turn(now)

    def _recovered(self, now: Instant) -> None:
        self._partitions.retention.begin(now)
        self._standing.recovered(now)

    def stop(self, now: Instant) -> list[Effect]:
        """Begin a clean stop: with several nodes, have the leaderships moved away first; then answer nothing
        more, make everything durable, and close the logs. `is_stopped` tells the end.
        """
        self._standing.leave(self._begin_stop, now)
        return self._end_of_turn(now)

    def _begin_stop(self, now: Instant) -> None:
        self.is_stopping = True
        if self._context.controllers is not None:
            self._context.controllers.close()
            self._quorum.resign(now)
        if self._recovery is not None:
            self._recovery.stop()
        self._partitions.stop()
        self._agenda.has_deadlines = True

    # -- sessions

    def connected(
        self, session_id: SessionId, listener: str, peer_address: str, now: Instant
    ) -> list[Effect]:
        """Begin a session: a connection was accepted on `listener`."""
        frame_bytes_max = first_frame_bytes_max(self.settings, listener)
        framer = Framer(
            frame_bytes_max=frame_bytes_max, shared=self._receive_buffer, spares=self._spare_buffers
        )
        self._sessions[session_id] = Session(
            session_id,
            framer,
            listener=listener,
            peer_address=peer_address,
            is_controller=listener in self.settings.controller_listener_names,
        )
        return []

    def buffer(self, session_id: SessionId) -> memoryview:
        """The memory for the next bytes of this session; valid until the next call."""
        return self._sessions[session_id].framer.buffer()

    def receive(self, session_id: SessionId, size: int, now: Instant) -> list[Effect]:
        """Process `size` bytes that were written into `buffer(session_id)`."""
        session = self._sessions[session_id]
        if session.is_closing:
            return self._end_of_turn(now)
        try:
            frames = session.framer.received(size)
        except DecodeError as error:
            self._close(session, f"not a Kafka frame: {error}")
            return self._end_of_turn(now)
        for frame in frames:
            if session.is_closing or self.is_stopping:
                break  # a record appended during a stop would come after the mark of the clean stop
            if self._replying.turn_bytes > SESSION_TURN_BYTES:
                self._replying.rest(session)
            if session.is_muted:
                session.backlog.append(memoryview(bytearray(frame)))
                session.backlog_bytes += len(frame)
            else:
                self._serve(session, frame, now)
        if session.framer.recycle() or session.backlog_bytes or session.held_bytes:
            self._memory.bound(session, now, self._close, self._mute)
        return self._end_of_turn(now)

    def unread(self, session_id: SessionId, size: int, now: Instant, *, has_read: bool) -> list[Effect]:
        """Record the bytes of responses that the client of this session has not read, and whether it has read
        some since the last call.
        """
        session = self._sessions.get(session_id)
        if session is not None:
            self._replying.unread(session, size, now, has_read=has_read)
        return self._end_of_turn(now)

    def disconnected(self, session_id: SessionId, now: Instant) -> list[Effect]:
        """End a session whose connection is closed; its parked requests are dropped when they are woken or
        expire.
        """
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_closing = True
            if session.beats_for is not None:
                self._quorum.heartbeat_lost(session.beats_for, now)
            self._memory.released(session)
            self._replying.memory.forget(session)
            for call in session.owed:
                if call.waiting is not None:
                    call.waiting.abandoned()
                if call.answer:
                    release(call.answer)
            session.owed.clear()
        return self._end_of_turn(now)

    # -- links

    def link_buffer(self, link: LinkId) -> memoryview | None:
        """Where the outside puts the next bytes received on a link; None for one that was closed."""
        return self._links.buffer(link)

    def link_received(self, link: LinkId, size: int, now: Instant) -> list[Effect]:
        """`size` bytes were put into `link_buffer(link)`."""
        self._links.received(link, size, now)
        return self._end_of_turn(now)

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """A link could not be opened, or has ended."""
        self._links.lost(link, loss)
        return self._end_of_turn(now)

    def has_request_in_flight(self, session_id: SessionId) -> bool:
        """Whether the client of this session waits for a response."""
        return self._sessions[session_id].has_request_in_flight

    @property
    def request_bytes(self) -> int:
        """The memory of requests between turns, over all sessions, in bytes; `queued.max.request.bytes`
        bounds it.
        """
        return self._memory.total_bytes

    def take_mute_changes(self) -> list[tuple[SessionId, bool]]:
        """The sessions that must no longer be read (True) or may be read again (False), since the last
        call.
        """
        changes, self._mute_changes = self._mute_changes, []
        return changes

    def unreadable(self, file: Sliceable, error: StorageError, now: Instant) -> list[Effect]:
        """Take the partition of a file offline that could not be read while a response was sent."""
        if self.is_stopped:
            return []
        unreadable(self._partitions.directories, file, error)
        return self._end_of_turn(now)

    # -- time and results

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """Process the result of a sync (None or StorageError) or of a job (its result or exception)."""
        self._continuations.finished(ticket, result, now)
        self._agenda.has_deadlines = True
        return self._end_of_turn(now)

    def _job_finished(self, call: Call, finish: Finish, now: Instant) -> None:
        """Continue a request after its job, also if its session is closed, because a Produce without
        acknowledgement takes effect all the same.
        """
        if self.is_stopping:
            return
        answer = finish()
        if call.session.is_closing or call.answer is not None:
            return
        if isinstance(answer, Encoded):
            self._answer(call, answer.message, now, answer.chunks)
        elif isinstance(answer, Message):
            self._answer(call, answer, now)
        else:
            self._let_go(call, answer)

    def tick(self, now: Instant) -> list[Effect]:
        """Process the time: answer the requests that have expired, and begin the jobs that are due."""
        for waiting in self._context.timers.expired(now):
            if (answer := waiting.expired(now)) is not None:
                self._answer(waiting.call, answer, now)
        self._resumable += (*self.quotas.rested(now), *self._replying.take_rested())
        self._partitions.tick(now)
        if not self.is_stopping:
            self._context.tick_shards(now)
            self._standing.tick(now)
            if self._controller_registration is not None:
                self._controller_registration.tick(now)
        self._memory.close_stalled(now, self._close)
        controllers = self._context.controllers
        if (
            controllers is not None
            and (due_us := controllers.deadline_us) is not None
            and due_us <= now.mono_us
        ):
            controllers.tick(now)
        self._links.tick(now)
        deadline = self._quorum.deadline_us
        if deadline is not None and deadline <= now.mono_us:
            self._quorum.tick(now)
        self._agenda.has_syncs = self._agenda.has_deadlines = True
        return self._end_of_turn(now)

    def deadline(self) -> Micros | None:
        """The next time for `tick`, on the monotonic clock; None if there is none."""
        if self._agenda.has_deadlines:
            self._agenda.has_deadlines = False
            self._others_us = self._deadline_of_others()
        earliest = self._others_us
        if self._quorum.deadline_us is not None:
            earliest = earlier(earliest, self._quorum.deadline_us)
        if self._context.controllers is not None:
            earliest = earlier(earliest, self._context.controllers.deadline_us)
        if self._links.deadline_us is not None:
            earliest = earlier(earliest, self._links.deadline_us)
        if self._context.timers.next_us is not None:
            earliest = earlier(earliest, self._context.timers.deadline())
        if not self.is_stopping:
            slices = self._context.slices
            if (slices.ready and slices.is_due) or self._context.transactions.has_more_due:
                return Micros(0)
            if self._controller_registration is not None:
                earliest = earlier(earliest, self._controller_registration.deadline_us)
            if self._standing.deadline_us is not None:
                earliest = earlier(earliest, self._standing.deadline_us)
        if self.quotas.resting:
            earliest = earlier(earliest, self.quotas.deadline())
        if self._memory.starved:
            earliest = earlier(earliest, self._memory.deadline())
        if self._replying.yielding or self._replying.memory.is_short:
            earliest = earlier(earliest, self._replying.deadline())
        return earliest

    def _deadline_of_others(self) -> Micros | None:
        if self.is_stopping:
            return self._partitions.deadline()
        return earlier(self._partitions.deadline(), self._context.shards_deadline())

    def forgotten(self, now: Instant) -> str:
        """Work that has no note in the agenda, between turns; the simulation asserts that there is none."""
        agenda, context = self._agenda, self._context
        if not agenda.has_deadlines:
            if earlier(self._others_us, due_us := self._deadline_of_others()) != self._others_us:
                return f"a deadline at {due_us} us, where {self._others_us} is known"
            if self._standing.has_failures:
                return "a report to the controller"
        if any(shards.runtime.has_news for shards in context.coordinators):
            return "a coordinator's answers"
        is_tick_due = agenda.has_deadlines or (self._others_us is not None and self._others_us <= now.mono_us)
        if not is_tick_due and any(one.is_sync_due(now) for one in self._partitions.directories):
            return "a sync"
        return ""

    # -- requests

    def _serve(self, session: Session, frame: memoryview, now: Instant) -> None:
        """Run one request."""
        quotas = self.quotas
        begun_ns = quotas.work_ns() if quotas.is_timed else 0
        handlers, newest = (
            (self.handlers, self._context.newest_served)
            if not session.is_controller
            else self._of_controllers
        )
        try:
            header, handler, request = read_request(frame, handlers, newest, self.settings)
        except UnsupportedVersion as unsupported:
            self._refuse_version(session, unsupported, now)
            return
        except NotServed as refusal:
            self._close(session, str(refusal))
            return
        call = Call(session, header.api_key, header.api_version, header.correlation_id, header.client_id)
        answer = handler(self._context, call, request, now)
        if quotas.is_set and not session.is_controller:
            quotas.served(call, len(frame), begun_ns)
            if answer is SILENT or answer is MUTING_SILENT:
                quotas.charge_silent(call, now)
        if (session.is_paused or session.throttled_until_us is not None) and not session.is_muted:
            self._mute(session)
        if type(answer) is not Parked:
            self._answer(call, answer, now)
        elif answer is not SILENT:
            if answer is not MUTING_SILENT:
                session.owed.append(call)
            if answer is not FLOWING:
                session.held_by = call
            if not session.is_muted and (
                session.held_by is not None or len(session.owed) >= self._in_flight_max
            ):
                self._mute(session)

    def _refuse_version(self, session: Session, unsupported: UnsupportedVersion, now: Instant) -> None:
        """Answer ApiVersions in version 0 with the supported versions (KIP-511); for any other API close
        the connection, as Kafka does.
        """
        header = unsupported.header
        if header.api_key != API_VERSIONS:
            self._close(session, str(unsupported))
        else:
            self._answer(
                Call(session, header.api_key, 0, header.correlation_id, header.client_id),
                of_unsupported_version(),
                now,
            )

    def _answer(self, call: Call, message: Message, now: Instant, encoded: list[Chunk] | None = None) -> None:
        """Send the response as soon as every earlier one of the session is sent."""
        session = call.session
        try:
            chunks = encoded or encode_reply(message, call.api_key, call.version, call.correlation_id)
        except (
            ValueError,
            OverflowError,
        ) as error:  # longer than a length field allows: a request must not end the process
            self._close(session, f"the answer cannot be written: {error}")
            return
        if call.forwarding is not None:
            from sparklog_server.broker.handlers.envelope import enveloped  # a node alone answers none

            chunks = enveloped(call.forwarding, message, chunks)
        if self.quotas.is_set and (throttled := self.quotas.charged(call, message, chunks, now)) is not None:
            chunks = encode_reply(throttled, call.api_key, call.version, call.correlation_id)
            if not session.is_muted:
                self._mute(session)  # the response first, then the mute (KIP-219)
        size = retain(chunks) if len(chunks) > 1 else len(chunks[0]) + CHUNK_BYTES
        self._replying.turn_bytes += size
        if not session.owed:
            self._effects.append(Reply(session.id, chunks))
            return
        if call.waiting is None and call is not session.held_by:
            session.owed.append(call)
        self._effects += self._replying.in_order(call, chunks, size)
        if session.is_muted:
            self._resumable.append(session)

    def _mute(self, session: Session) -> None:
        session.is_muted = True
        self._mute_changes.append((session.id, True))

    def _close(self, session: Session, reason: str, *, is_at_once: bool = False) -> None:
        if session.is_closing and not is_at_once:
            return
        session.is_closing = True
        self._memory.released(session)
        self._trace("session-closed", peer=session.peer_address, listener=session.listener, reason=reason)
        self._effects.append(Disconnect(session.id, reason, is_at_once))

    # -- the end of a turn

    def _end_of_turn(self, now: Instant) -> list[Effect]:
        """Do the work that this turn caused, until none is left: commits, wake-ups, resumed sessions,
        syncs.
        """
        agenda, context, partitions, quorum = self._agenda, self._context, self._partitions, self._quorum
        memory, replies = self._memory, self._replying.memory
        while True:
            if context.woken:
                self._wake(now)
            elif self._links.has_answers:
                self._links.deliver(now)
            elif quorum.deltas or quorum.committed:
                self._publish(now)
            elif partitions.led or agenda.has_coordination:
                agenda.has_coordination = False
                for call, answer in settle(context, now):
                    self._answer(call, answer, now)
            elif agenda.has_deadlines and self._standing.has_failures:
                self._standing.report_failures(now)
            elif memory.starved and memory.has_readable:
                self._resumable.extend(memory.take_readable(now))
            elif replies.fed or (replies.starved and not replies.is_short):
                self._resumable.extend(self._replying.take_readable())
            elif self._resumable:
                self._resume(self._resumable.pop(), now)
            elif context.paused and not partitions.is_congested:
                self._resumable.extend(context.paused)
                for session in context.paused:
                    session.is_paused = False
                context.paused.clear()
            elif (
                context.controllers is not None
                and self._controller_epoch != quorum.epoch
                and not self.is_stopping
            ):
                self._controller_epoch = quorum.epoch
                self._standing.controller_elected(now)
            else:
                if self.is_stopping:
                    partitions.hurry()
                if agenda.has_syncs:
                    agenda.has_syncs = False
                    partitions.begin_due_syncs(now)
                if not context.woken:  # a sync that the disk refuses releases every waiter
                    break
        self._replying.turn_bytes = 0
        if replies.is_short:
            for session, reason in self._replying.take_excess(now):
                self._close(session, reason, is_at_once=True)
        if (
            self.is_stopping
            and not self.is_stopped
            and partitions.is_quiet
            and self._quorum.is_quiet
            and context.jobs.running == 0
            and not (self._recovery is not None and self._recovery.is_running)
        ):
            self._links.close_all()
            self._quorum.close(now)
            partitions.close(now)
            if self._metadata_dir is not None:
                close_without_logs(self._metadata_dir, self._trace, now)
            self.is_stopped = True
        return self._continuations.take_effects()

    def _wake(self, now: Instant) -> None:
        # A dict has each waiter once: one sync may move every partition of a fetch, which then reads all of
        # them once.
        woken = list(self._context.woken)
        self._context.woken.clear()
        for waiting in woken:
            call = waiting.call
            if call is None:
                waiting.woken(now)
            elif call.answer is None and not call.session.is_closing:
                answer = waiting.woken(now)
                if type(answer) is Parked:
                    self._let_go(call, answer)
                elif answer is not None:
                    self._answer(call, answer, now)

    def _let_go(self, call: Call, parked: Parked) -> None:
        """Serve the next requests of a session although the one that held it up is not answered yet."""
        if parked in (FLOWING, SILENT):
            call.session.held_by = None
            self._resumable.append(call.session)

    def _publish(self, now: Instant) -> None:
        """Publish a new image: the metadata log has committed records. Then answer the proposals."""
        quorum = self._quorum
        self._agenda.has_deadlines = True
        for delta in quorum.take_deltas():
            follow(self._live, self._partitions, self._recovery, delta, now)
            self.settings = self._live.settings
            if delta.quotas_changed:
                self.quotas.published(delta.after.quotas)
            for shards in self._context.coordinators:
                shards.published(delta, now)
            if delta.brokers_changed:
                self._standing.brokers_changed(delta.after, now)
        if self._controller_registration is not None and not self.is_stopping:
            self._controller_registration.published(now)
        for then, reply in quorum.take_committed():
            then(reply, now)

    def _resume(self, session: Session, now: Instant) -> None:
        """Serve the requests that arrived while the session was muted, until it is muted again or none is
        left; then resume reading.
        """
        if not session.is_muted or session.is_closing or session.is_paused or session.held_by is not None:
            return
        if (
            len(session.owed) >= self._in_flight_max
            or session.throttled_until_us is not None
            or session.awaits_reader
        ):
            return
        replying = self._replying
        if replying.turn_bytes > TURN_BYTES:
            replying.rest(session)
            return
        session.is_muted, turn_bytes_max = False, min(replying.turn_bytes + SESSION_TURN_BYTES, TURN_BYTES)
        while session.backlog and not session.is_muted and not session.is_closing and not self.is_stopping:
            frame = session.backlog.popleft()
            session.backlog_bytes -= len(frame)
            self._serve(session, frame, now)
            if replying.turn_bytes > turn_bytes_max:
                replying.rest(session)
        self._memory.count(session, now)
        if not session.is_muted and self._memory.starves(session):
            session.is_muted = True
        elif not session.is_muted:
            self._mute_changes.append((session.id, False))


def _controller_registration(context: Context, parts: Parts) -> "ControllerRegistration | None":
    """The registration of this node's controller; None if other nodes cannot reach one here."""
    settings = context.settings
    if not settings.controller_listener_names or "controller" not in settings.process_roles:
        return None
    from sparklog_server.broker.controller_registration import ControllerRegistration

    return ControllerRegistration(context, Uuid(parts.registration.incarnation_id))


def _apis_of_controllers() -> tuple[Handlers, dict[int, int]]:
    """The handlers of a listener of controllers, which a node alone does not import, and its APIs."""
    from sparklog_server.broker.dispatch_controller import CONTROLLER, NEWEST_OF_CONTROLLER

    return CONTROLLER, NEWEST_OF_CONTROLLER
