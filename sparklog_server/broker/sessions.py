"""The sessions of one broker: requests come in, and their answers go out in order.

    receive ─► Framer ─► header ─► handlers[api] ─┬─► answer now ──► quotas ──► in order ──► Reply
                  │                               └─► Parked: owed until it is woken or expires ─┘
                  └─► muted: the frame waits in the backlog ─► go_on ─► served

Bounds of memory and quotas mute a session, which is then not read; `go_on` serves it when the cause is over.
"""

from collections.abc import Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from sparklog.effects import CHUNK_BYTES, Chunk, Disconnect, Reply, release, retain
from sparklog.errors import DecodeError
from sparklog.model import Instant, Micros, SessionId, earlier
from sparklog.wire.api_keys import API_VERSIONS
from sparklog.wire.frame import Framer, spare_buffers
from sparklog.wire.header import UnsupportedVersion, encode_reply
from sparklog.wire.schema import Message
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.broker.context import Context, Handlers
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.handlers.api_versions import of_unsupported_version
from sparklog_server.broker.memory import ReplyMemory, RequestMemory
from sparklog_server.broker.metrics.observers import Observers
from sparklog_server.broker.reply_sender import (
    ANSWER_BYTES_MIN,
    SESSION_TURN_BYTES,
    SESSION_TURN_NS,
    TURN_BYTES,
    TURN_NS,
    ReplySender,
)
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
    Wakeable,
)
from sparklog_server.broker.sliced_requests import SlicedRequests
from sparklog_server.continuations import Continuations
from sparklog_server.metadata.image import MetadataDelta
from sparklog_server.replica.directory import Trace
from sparklog_server.security import NotLoaded

if TYPE_CHECKING:
    from sparklog_server.broker.access.authentication import Authentication

Apis = tuple[Handlers, Mapping[int, int]]
"""What a listener serves: the handlers, and the newest version of each API."""
_NO_CONTROLLERS: Final[Apis] = ({}, {})


class Sessions:
    """The sessions by their ids.

    Invariants: the answers of a session leave in the order of its requests; a muted session runs no request;
    after `stop` no request runs. Implements `context.SessionsPort`.

    One class, because each of these reaches into the order and the memory of the sessions.
    """

    def __init__(
        self,
        live: DynamicBrokerConfig,
        quotas: ClientQuotas,
        observers: Observers,
        continuations: Continuations,
        apis: Apis,
        woken: dict[Wakeable, None],
        *,
        authentication: "Authentication | None",
        receive_buffer: bytearray,
        trace: Trace,
    ) -> None:
        connections = live.settings.connections
        self.is_stopping = False
        self.deadline_us: Micros | None = None  # the next time for `tick`
        self.mute_changes: dict[SessionId, bool] = {}
        self.observers = observers
        self._apis = apis
        self._apis_of_controllers = _NO_CONTROLLERS  # until the first session of a controller listener
        self._live = live
        self._quotas = quotas
        self._authentication = authentication
        self._effects = continuations.effects
        self._trace = trace
        self._in_flight_max = connections.sparklog_session_in_flight_max
        self._receive_buffer = receive_buffer
        self._spare_buffers = spare_buffers()
        self._turn_ns = 0  # of requests, since the start of the turn
        self._by_id: dict[SessionId, Session] = {}
        self._resumable: list[Session] = []
        self._paused: list[Session] = []
        self.memory = RequestMemory(connections.queued_max_request_bytes)
        replies = ReplyMemory(connections.sparklog_reply_memory_max)
        self.slices = SlicedRequests(woken, self.memory, replies, quotas.work_ns, self.close)
        self.replying = ReplySender(replies, self._mute, self.slices.unread)
        self.jobs = RequestJobs(
            continuations,
            self.memory,
            (receive_buffer, *self._spare_buffers),
            finished=self._job_finished,
            disconnect=self.close,
            trace=trace,
        )

    @property
    def queued(self) -> int:
        """The whole requests that wait on muted sessions."""
        return sum(len(session.backlog) for session in self._by_id.values())

    def stop(self) -> None:
        """Serve no more requests."""
        self.is_stopping = True

    # -- connections

    def connected(
        self,
        session_id: SessionId,
        listener: str,
        peer_address: str,
        principal: str,
        groups: tuple[str, ...],
    ) -> None:
        """Begin a session: a connection was accepted on `listener`."""
        settings = self._live.settings
        framer = Framer(
            frame_bytes_max=settings.connections.socket_request_max_bytes,
            shared=self._receive_buffer,
            spares=self._spare_buffers,
        )
        session = self._by_id[session_id] = Session(
            session_id,
            framer,
            listener=listener,
            peer_address=peer_address,
            principal=principal,
            groups=groups,
            is_controller=listener in settings.controller_listener_names,
        )
        if session.is_controller and self._apis_of_controllers is _NO_CONTROLLERS:
            self._apis_of_controllers = _import_controllers()
        if self._authentication is not None:
            session.authentication = self._authentication.begin(listener)
            if session.authentication is not None:
                framer.frame_bytes_max = min(settings.sasl.server_receive_bytes_max, framer.frame_bytes_max)

    def buffer(self, session_id: SessionId) -> memoryview:
        """The memory for the next bytes of this session; valid until the next call."""
        return self._by_id[session_id].framer.buffer()

    def receive(self, context: Context, session_id: SessionId, size: int, now: Instant) -> None:
        """Process `size` bytes that were written into `buffer(session_id)`."""
        session = self._by_id[session_id]
        if session.is_closing:
            return
        try:
            frames = session.framer.received(size)
        except DecodeError as error:
            self.close(session, f"not a Kafka frame: {error}")
            return
        if self.observers.is_on:
            self.observers.received(now.mono_us)
        work_ns = self._quotas.work_ns
        begun_ns = work_ns()
        for frame in frames:
            if session.is_closing or self.is_stopping:
                break  # a record appended during a stop would come after the mark of the clean stop
            if self.replying.turn_bytes > SESSION_TURN_BYTES or work_ns() - begun_ns > SESSION_TURN_NS:
                self.replying.rest(session)
            if session.is_muted:
                if not session.backlog:
                    session.waits_from_us = now.mono_us
                session.backlog.append(memoryview(bytearray(frame)))
                session.backlog_bytes += len(frame)
            else:
                self._serve(context, session, frame, now)
        self._turn_ns += work_ns() - begun_ns
        if (times := self.observers.times) is not None:
            times.flush()
        if session.framer.recycle() or session.backlog_bytes or session.held_bytes:
            self.memory.bound(session, now, self.close, self._mute)

    def unread(self, session_id: SessionId, size: int, now: Instant, *, has_read: bool) -> None:
        """Record the bytes of responses that the client of this session has not read, and whether it has read
        some since the last call.
        """
        session = self._by_id.get(session_id)
        if session is not None:
            self.replying.unread(session, size, now, has_read=has_read)

    def sent(self, session_id: SessionId, duration_us: int) -> None:
        """The responses of a session were sent, of which the socket had not taken all at once."""
        session = self._by_id.get(session_id)
        if session is not None:
            self.observers.sent(session, duration_us)

    def held_up(self, session_id: SessionId) -> None:
        """The socket has not taken the responses of a session at once: `sent` follows."""
        if (slow := self.observers.slow) is not None and session_id in self._by_id:
            slow.held_up(session_id)

    def disconnected(self, session_id: SessionId) -> Session | None:
        """End a session whose connection is closed; its parked requests are dropped when they are woken or
        expire. None if it has ended before.
        """
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.is_closing = True
            self.memory.released(session)
            self.replying.memory.forget(session)
            self.observers.disconnected(session_id, session.owed)
            for call in session.owed:
                if call.waiting is not None:
                    call.waiting.abandoned()
                if call.answer:
                    release(call.answer)
            session.owed.clear()
            if session.telemetry is not None:
                session.telemetry.end()
        return session

    def has_request_in_flight(self, session_id: SessionId) -> bool:
        """Whether the client of this session waits for a response."""
        return self._by_id[session_id].has_request_in_flight

    def is_authenticated(self, session_id: SessionId) -> bool:
        """Whether the client of this session has authenticated, or need not."""
        authentication = self._by_id[session_id].authentication
        return authentication is None or authentication.is_authenticated

    def published(self, delta: MetadataDelta) -> None:
        """Follow the quotas of a new image, and close the sessions whose delegation token does not exist any
        more. Those whose token has expired end in `SessionAuthentication.refusal`.
        """
        if delta.quotas_changed:
            self._quotas.published(delta.after.quotas)
        if self._authentication is None or delta.after.carried is delta.before.carried:
            return
        from sparklog_server.metadata.delegation_tokens import token_of  # few nodes have users

        for session in self._by_id.values():
            if session.is_closing or session.token_id is None:
                continue
            if token_of(delta.after, session.token_id) is None:
                self.close(session, "the delegation token of the session was removed", is_at_once=True)

    def close(self, session: Session, reason: str, *, is_at_once: bool = False) -> None:
        """Close the connection of a session after its answers, or at once."""
        if session.is_closing and not is_at_once:
            return
        session.is_closing = True
        self.memory.released(session)
        self._trace("session-closed", peer=session.peer_address, listener=session.listener, reason=reason)
        self._effects.append(Disconnect(session.id, reason, is_at_once))

    def pause(self, session: Session) -> None:
        """Mute the session until the disk has caught up."""
        if not session.is_paused:
            session.is_paused = True
            self._paused.append(session)

    def _mute(self, session: Session) -> None:
        session.is_muted = True
        self.mute_changes[session.id] = True

    # -- requests

    def _serve(self, context: Context, session: Session, frame: memoryview, now: Instant) -> None:
        """Run one request."""
        if (
            session.authentication is not None
            and (reason := session.authentication.refusal(frame, now)) is not None
        ):
            self.close(session, reason)
            return
        quotas = self._quotas
        begun_ns = quotas.work_ns() if quotas.is_timed else 0
        handlers, newest = self._apis if not session.is_controller else self._apis_of_controllers
        try:
            header, handler, request = read_request(frame, handlers, newest, self._live.settings)
        except UnsupportedVersion as unsupported:
            self._refuse_version(session, unsupported, now)
            return
        except NotServed as refusal:
            self.close(session, str(refusal))
            return
        call = Call(
            session,
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            session.principal,
        )
        if (spans := self.observers.spans) is not None:
            spans.left -= 1
            if spans.left < 0:
                call.span = spans.begin(call, len(frame), now)
        try:
            answer: Any = handler(context, call, request, now)  # Any: then a Message or Parked
            if type(answer) is GeneratorType:  # `is_in_steps`, without a call for each request
                answer = self.slices.begin(call, answer, now, frame_bytes=len(frame))
        except NotLoaded:
            # The client tries again, on this broker or another. An authorization error would be final.
            self.close(session, "the access rules are not loaded yet")
            return
        if spans is not None and call.span is not None and type(answer) is Parked:
            spans.served(call.span)
            if answer is SILENT or answer is MUTING_SILENT:
                spans.ended(call.span, None)
        if quotas.is_set and not session.is_controller:
            quotas.served(call, len(frame), begun_ns)
            if answer is SILENT or answer is MUTING_SILENT:
                quotas.charge_silent(call, now)
        if (session.is_paused or session.throttled_until_us is not None) and not session.is_muted:
            self._mute(session)
        times = self.observers.times
        if type(answer) is not Parked:
            self.answer(call, answer, now)
            if times is None:
                return
            if call.api_key == times.run_api and call.version == times.run_version:
                times.run_count += 1
                return
        elif answer is not SILENT:
            if answer is not MUTING_SILENT:
                session.owed.append(call)
            if answer is not FLOWING:
                session.held_by = call
            if not session.is_muted and (
                session.held_by is not None or len(session.owed) >= self._in_flight_max
            ):
                self._mute(session)
        if times is not None:
            times.served(call, request, answer, len(frame))

    def _refuse_version(self, session: Session, unsupported: UnsupportedVersion, now: Instant) -> None:
        """Answer ApiVersions in version 0 with the supported versions (KIP-511); for any other API close
        the connection, as Kafka does.
        """
        header, authentication = unsupported.header, session.authentication
        if header.api_key != API_VERSIONS:
            self.close(session, str(unsupported))
        elif authentication is not None and authentication.may_continue:
            self.close(session, authentication.unexpected(header.api_key))
        else:
            call = Call(
                session, header.api_key, 0, header.correlation_id, header.client_id, session.principal
            )
            self.answer(call, of_unsupported_version(), now)

    def answer(self, call: Call, message: Message, now: Instant, encoded: list[Chunk] | None = None) -> None:
        """Send the response as soon as every earlier one of the session is sent."""
        session = call.session
        try:
            chunks = encoded or encode_reply(message, call.api_key, call.version, call.correlation_id)
        except (
            ValueError,
            OverflowError,
        ) as error:  # longer than a length field allows: a request must not end the process
            self.close(session, f"the answer cannot be written: {error}")
            return
        if call.forwarding is not None:
            from sparklog_server.broker.handlers.envelope import enveloped  # a node alone answers none

            chunks = enveloped(call.forwarding, message, chunks)
        if (
            self._quotas.is_set
            and (throttled := self._quotas.charged(call, message, chunks, now)) is not None
        ):
            chunks = encode_reply(throttled, call.api_key, call.version, call.correlation_id)
            if (times := self.observers.times) is not None and session.throttled_until_us is not None:
                times.throttled(call, session.throttled_until_us - now.mono_us)
            if not session.is_muted:
                self._mute(session)  # the response first, then the mute (KIP-219)
        if self.observers.is_on:
            self.observers.answered(call, message, now)
        size = retain(chunks) if len(chunks) > 1 else len(chunks[0]) + CHUNK_BYTES
        self.replying.turn_bytes += max(size, ANSWER_BYTES_MIN)
        if not session.owed:
            self._effects.append(Reply(session.id, chunks))
            return
        if call.waiting is None and call is not session.held_by:
            session.owed.append(call)
        self._effects += self.replying.in_order(call, chunks, size)
        if session.is_muted:
            self._resumable.append(session)

    def woken(self, call: Call, answer: Message | Parked | None, now: Instant) -> None:
        """A parked request was woken: send its answer, or let it wait on (None, or Parked)."""
        if isinstance(answer, Parked):
            if answer in (FLOWING, SILENT):  # the next requests need not wait for it any more
                call.session.held_by = None
                self._resumable.append(call.session)
        elif answer is not None:
            self.answer(call, answer, now)

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
            self.answer(call, answer.message, now, answer.chunks)
        else:
            self.woken(call, answer, now)

    # -- resumed sessions

    def tick(self, now: Instant) -> None:
        """Resume the sessions whose rest is over, and close those that have stalled."""
        if (slow := self.observers.slow) is not None:
            slow.settle()
        self._resumable += (*self._quotas.rested(now), *self.replying.take_rested())
        self.memory.close_stalled(now, self.close)

    def go_on(self, context: Context, now: Instant) -> bool:
        """Resume sessions whose cause of being muted is over; whether there was one. Otherwise the turn may
        end: close the sessions that hold too much memory for answers.
        """
        memory, replies = self.memory, self.replying.memory
        if memory.starved and memory.has_readable:
            self._resumable.extend(memory.take_readable(now))
        elif replies.fed or (replies.starved and not replies.is_short):
            self._resumable.extend(self.replying.take_readable())
        elif self._resumable:
            self._resume(context, self._resumable.pop(), now)
        elif self._paused and not context.partitions.is_congested:
            self._resumable.extend(self._paused)
            for session in self._paused:
                session.is_paused = False
            self._paused.clear()
        else:
            self.replying.turn_bytes = self._turn_ns = 0
            if replies.is_short:
                for session, reason in self.replying.take_excess(now):
                    self.close(session, reason, is_at_once=True)
            slow = self.observers.slow
            self.deadline_us = Micros(0) if slow is not None and slow.pending else None
            if self._quotas.resting or memory.starved or self.replying.yielding or replies.is_short:
                self.deadline_us = earlier(self.deadline_us, self._deadline())
            return False
        return True

    def _deadline(self) -> Micros | None:
        earliest = None
        if self._quotas.resting:
            earliest = self._quotas.deadline()
        if self.memory.starved:
            earliest = earlier(earliest, self.memory.deadline())
        if self.replying.yielding or self.replying.memory.is_short:
            earliest = earlier(earliest, self.replying.deadline())
        return earliest

    def _resume(self, context: Context, session: Session, now: Instant) -> None:
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
        replying = self.replying
        if replying.turn_bytes > TURN_BYTES or self._turn_ns > TURN_NS:
            replying.rest(session)
            return
        if self.observers.is_on:
            self.observers.resumed(session.waits_from_us)
        session.is_muted, turn_bytes_max = False, min(replying.turn_bytes + SESSION_TURN_BYTES, TURN_BYTES)
        work_ns = self._quotas.work_ns
        begun_ns = work_ns()
        while session.backlog and not session.is_muted and not session.is_closing and not self.is_stopping:
            frame = session.backlog.popleft()
            session.backlog_bytes -= len(frame)
            self._serve(context, session, frame, now)
            if replying.turn_bytes > turn_bytes_max or work_ns() - begun_ns > SESSION_TURN_NS:
                replying.rest(session)
        self._turn_ns += work_ns() - begun_ns
        if (times := self.observers.times) is not None:
            times.flush()
        self.memory.count(session, now)
        if not session.is_muted and self.memory.starves(session):
            session.is_muted = True
        elif not session.is_muted:
            self.mute_changes[session.id] = False


def _import_controllers() -> Apis:
    """The APIs of a listener of controllers: their handlers are most of the modules of a start."""
    from sparklog_server.broker.dispatch_controller import CONTROLLER, NEWEST_OF_CONTROLLER

    return CONTROLLER, NEWEST_OF_CONTROLLER
