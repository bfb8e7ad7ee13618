"""The broker: one deterministic object. Bytes and time go in, effects come out.

    sessions ─► a request ─► HANDLERS[api] ─► answer now ──────────────────────► Reply
                                  │                                                ▲
                                  └─► Parked ─► high watermark, commit, timer ─► woken, expired

Each call from outside is a turn. At its end the broker answers requests whose wait is over, resumes muted
sessions, and begins the syncs that are due. Nothing here blocks, reads a clock or calls back, except that
`open` reads the metadata log, and all logs of a node that is alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from sparklog.effects import Effect, Halt, LinkId, Loss, Sliceable
from sparklog.model import Instant, Micros, SessionId, Ticket, earlier
from sparklog.wire.frame import RECEIVE_BUFFER_BYTES
from sparklog_server.broker.access.authorization import Allow, Authorization
from sparklog_server.broker.access.client_quotas import ClientQuotas, WorkClock
from sparklog_server.broker.cluster.broker_lifecycle import BrokerLifecycle
from sparklog_server.broker.context import Context
from sparklog_server.broker.coordinators.coordinator_requests import settle
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.dispatch import HANDLERS, newest_served
from sparklog_server.broker.dynamic_config import CertificatesRefusal, any_certificates
from sparklog_server.broker.metrics.observers import Observers
from sparklog_server.broker.opening.directories import close_without_logs
from sparklog_server.broker.opening.local_partitions import follow
from sparklog_server.broker.opening.parts import Parts, nothing_readable, open_parts
from sparklog_server.broker.sessions import Sessions
from sparklog_server.config.sasl_settings import uses_sasl
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.metadata.features import unsupported
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.replica_manager import unreadable
from sparklog_server.security import ANONYMOUS

if TYPE_CHECKING:
    from sparklog_server.broker.access.audit_log import AuditLog
    from sparklog_server.broker.access.authentication import Authentication
    from sparklog_server.broker.cluster.broker_lifecycle import ControllerRegistration
    from sparklog_server.broker.cluster.replication import Replication


class Broker:
    """One node of a cluster.

    Invariant: every effect of a turn is returned by the call that began it. A simulation plants faults by a
    subclass with other `handlers` or shards.
    """

    handlers, transactions = HANDLERS, TransactionCoordinator

    def __init__(
        self,
        parts: Parts,
        *,
        receive_buffer: bytearray,
        work_clock: WorkClock,
        read: Callable[[str], bytes],
        trace: Trace,
    ) -> None:
        """Connect the parts: sessions, what handlers use of both, and what registers and replicates by it."""
        settings = parts.live.settings
        self.is_stopped = False
        self.loggers = parts.live.loggers
        self.link_buffer = parts.links.buffer
        self._live = parts.live
        self._continuations = parts.continuations
        self._effects = parts.continuations.effects
        self._agenda = parts.agenda
        self._partitions = parts.partitions
        self._quorum = parts.quorum
        self._links = parts.links
        self._registration = parts.registration
        self._metadata_dir = parts.metadata_dir
        self._recovery = parts.recovery
        self._trace = trace
        self._controller_epoch = -1  # in which the broker last reported
        self._others_us: Micros | None = None  # the earliest deadline of partitions and coordinators

        newest = newest_served(settings)
        self.quotas = ClientQuotas(settings, work_clock)
        self._sessions = sessions = Sessions(
            parts.live,
            self.quotas,
            Observers(parts.live, self.quotas.work_ns, entropy=parts.entropy, trace=trace),
            parts.continuations,
            (self.handlers, newest),
            parts.woken,
            authentication=_authentication(parts, read, trace),
            receive_buffer=receive_buffer,
            trace=trace,
        )
        self.buffer = sessions.buffer
        self.has_request_in_flight = sessions.has_request_in_flight
        self.is_authenticated = sessions.is_authenticated
        self.mute_changes = sessions.mute_changes
        self.sent, self.held_up = sessions.sent, sessions.held_up

        self._context = context = Context(parts, sessions, self.quotas, newest)
        self._audit = _audit_log(context, trace)
        self._replication = _replication(context, trace)
        self._controller_registration = _controller_registration(context, parts)
        self._standing = BrokerLifecycle(
            context, parts.failed_directories, parts.agenda, self._effects, trace
        )
        self.observed = (context, sessions, self._standing)  # what `BrokerReport` reads

    @classmethod
    def open(
        cls,
        settings: BrokerSettings,
        disk: Disk,
        *,
        entropy: Callable[[int], bytes],
        trace: Trace,
        now: Instant,
        allow: Allow | None = None,
        receive_buffer: bytearray | None = None,
        work_clock: WorkClock = lambda: 0,
        read: Callable[[str], bytes] = nothing_readable,
        certificates_refusal: CertificatesRefusal | None = None,
    ) -> Self:
        """Open the directories and the metadata log, and the data logs of a node that is alone; `start` then
        registers. `allow` decides about access in place of the settings. `read` reads the document of an URL,
        in jobs. Blocks. Raises StorageError, DirectoryRefused or SettingsError.
        """
        parts = open_parts(
            settings,
            disk,
            transactions=cls.transactions,
            authorization=Authorization.of(settings.access, allow),
            entropy=entropy,
            trace=trace,
            now=now,
            certificates_refusal=certificates_refusal or any_certificates,
        )
        if receive_buffer is None:
            receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        return cls(parts, receive_buffer=receive_buffer, work_clock=work_clock, read=read, trace=trace)

    # -- lifecycle

    @property
    def settings(self) -> BrokerSettings:
        """The current settings."""
        return self._live.settings

    @property
    def is_stopping(self) -> bool:
        """Whether the broker serves no more requests, because it was told to stop."""
        return self._sessions.is_stopping

    @property
    def is_ready(self) -> bool:
        """Whether the node is in service: its broker is registered and not fenced, or, if it is only a
        controller, that is registered; and it is not stopping.
        """
        if "broker" in self.settings.process_roles:
            return self._standing.is_ready and not self.is_stopping
        controller = self._controller_registration
        return controller is not None and controller.is_registered and not self.is_stopping

    def start(self, now: Instant) -> list[Effect]:
        """The first turn: register with the controller, and recover the logs that are not open yet."""
        if "broker" in self.settings.process_roles:
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
        self._sessions.stop()
        if self._audit is not None:
            self._audit.close()
        if self._context.controllers is not None:
            self._context.controllers.close()
            self._quorum.resign(now)
        if self._replication is not None:
            self._replication.close()
        if self._recovery is not None:
            self._recovery.stop()
        self._partitions.stop()
        self._agenda.has_deadlines = True

    # -- sessions

    def connected(
        self,
        session_id: SessionId,
        listener: str,
        peer_address: str,
        now: Instant,
        principal: str = ANONYMOUS,
        groups: tuple[str, ...] = (),
    ) -> list[Effect]:
        """Begin a session: a connection was accepted on `listener`, from a client that its certificate names
        as `principal`, of these groups.
        """
        self._sessions.connected(session_id, listener, peer_address, principal, groups)
        return []

    def receive(self, session_id: SessionId, size: int, now: Instant) -> list[Effect]:
        """Process `size` bytes that were written into `buffer(session_id)`."""
        self._sessions.receive(self._context, session_id, size, now)
        return self._end_of_turn(now)

    def unread(self, session_id: SessionId, size: int, now: Instant, *, has_read: bool) -> list[Effect]:
        """Record the bytes of responses that the client of this session has not read, and whether it has read
        some since the last call.
        """
        self._sessions.unread(session_id, size, now, has_read=has_read)
        return self._end_of_turn(now)

    def disconnected(self, session_id: SessionId, now: Instant) -> list[Effect]:
        """End a session whose connection is closed."""
        session = self._sessions.disconnected(session_id)
        if session is not None and session.beats_for is not None:
            self._quorum.heartbeat_lost(session.beats_for, now)
        return self._end_of_turn(now)

    @property
    def request_bytes(self) -> int:
        """The memory of requests between turns, over all sessions, in bytes; `queued.max.request.bytes`
        bounds it.
        """
        return self._sessions.memory.total_bytes

    # -- links

    def link_received(self, link: LinkId, size: int, now: Instant) -> list[Effect]:
        """`size` bytes were put into `link_buffer(link)`."""
        self._links.received(link, size, now)
        return self._end_of_turn(now)

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """A link could not be opened, or has ended."""
        self._links.lost(link, loss)
        return self._end_of_turn(now)

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

    def tick(self, now: Instant) -> list[Effect]:
        """Process the time: answer the requests that have expired, and begin the jobs that are due."""
        for waiting in self._context.timers.expired(now):
            if (answer := waiting.expired(now)) is not None:
                self._sessions.answer(waiting.call, answer, now)
        self._sessions.tick(now)
        self._partitions.tick(now)
        if not self.is_stopping:
            self._context.tick_shards(now)
            self._standing.tick(now)
            if self._controller_registration is not None:
                self._controller_registration.tick(now)
            if self._replication is not None:
                self._replication.tick(now)
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
        context, sessions = self._context, self._sessions
        controllers, registration = context.controllers, self._controller_registration
        replication = self._replication
        due = [
            self._others_us,
            self._quorum.deadline_us,
            self._links.deadline_us,
            sessions.deadline_us,
            None if context.timers.next_us is None else context.timers.deadline(),
            None if controllers is None else controllers.deadline_us,
            None if self._audit is None else self._audit.deadline_us,
        ]
        if not sessions.is_stopping:
            slices = context.slices
            if (slices.ready and slices.is_due) or context.transactions.has_more_due:
                return Micros(0)
            due += (
                self._standing.deadline_us,
                None if registration is None else registration.deadline_us,
                None if replication is None else replication.deadline_us,
            )
        earliest = None
        for one in due:  # without `min`, because every turn comes here
            if one is not None and (earliest is None or one < earliest):
                earliest = one
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

    # -- the end of a turn

    def _end_of_turn(self, now: Instant) -> list[Effect]:
        """Do the work that this turn caused, until none is left: commits, wake-ups, resumed sessions,
        syncs.
        """
        agenda, context, partitions, quorum = self._agenda, self._context, self._partitions, self._quorum
        sessions, replication = self._sessions, self._replication
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
                    sessions.answer(call, answer, now)
            elif replication is not None and replication.has_work and not sessions.is_stopping:
                replication.turn(now)
            elif agenda.has_deadlines and self._standing.has_failures:
                self._standing.report_failures(now)
            elif sessions.go_on(context, now):
                continue
            elif (
                context.controllers is not None
                and self._controller_epoch != quorum.raft.state.epoch  # `quorum.epoch` is two calls
                and not sessions.is_stopping
            ):
                self._controller_epoch = quorum.epoch
                self._standing.controller_elected(now)
            elif self._audit is not None and self._audit.is_due(now):
                self._audit.turn(now)
            else:
                if sessions.is_stopping:
                    partitions.hurry()
                if agenda.has_syncs:
                    agenda.has_syncs = False
                    partitions.begin_due_syncs(now)
                # A sync that the disk refuses releases every waiter, and is reported.
                if not context.woken and not (agenda.has_deadlines and self._standing.has_failures):
                    break
        if (
            sessions.is_stopping
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
        taken = self._effects[:]
        self._effects.clear()
        return taken

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
                self._sessions.woken(call, waiting.woken(now), now)

    def _publish(self, now: Instant) -> None:
        """Publish a new image: the metadata log has committed records. Then answer the proposals."""
        quorum = self._quorum
        self._agenda.has_deadlines = True
        authorizer = self._context.authorization.authorizer
        for delta in quorum.take_deltas():
            if authorizer is not None:
                authorizer.follow(delta)
            follow(self._live, self._partitions, self._recovery, delta, now)
            if delta.features_changed and (reason := unsupported(delta.after.features)):
                self._effects.append(Halt(f"the cluster has finalized features of another release: {reason}"))
            self._sessions.published(delta)
            for shards in self._context.coordinators:
                shards.published(delta, now)
            if delta.brokers_changed:
                self._standing.brokers_changed(delta.after, now)
            if self._replication is not None and (delta.brokers_changed or delta.configs_changed):
                self._replication.published(delta, now)
        if self._controller_registration is not None and not self.is_stopping:
            self._controller_registration.published(now)
        for then, reply in quorum.take_committed():
            then(reply, now)


def _authentication(parts: Parts, read: Callable[[str], bytes], trace: Trace) -> "Authentication | None":
    """The SASL listeners of this node; None without SASL. Raises SettingsError."""
    if not uses_sasl(parts.live.settings):
        return None
    from sparklog_server.broker.access.authentication import Authentication, background  # imports machines

    return Authentication(
        parts.live,
        lambda: parts.quorum.image,
        cluster_id=parts.cluster_id,
        entropy=parts.entropy,
        read=read,
        run_in_background=background(parts.continuations),
        trace=trace,
    )


def _audit_log(context: Context, trace: Trace) -> "AuditLog | None":
    """The audit log; None without an authorizer."""
    if context.authorization.audit is None:
        return None
    from sparklog_server.broker.access.audit_log import AuditLog

    return AuditLog(context, context.authorization.audit, trace)


def _replication(context: Context, trace: Trace) -> "Replication | None":
    """The replication of this node's partitions; None on a node that is alone or no broker."""
    if context.controllers is None or "broker" not in context.settings.process_roles:
        return None
    from sparklog_server.broker.cluster.replication import Replication

    return Replication(context, trace)


def _controller_registration(context: Context, parts: Parts) -> "ControllerRegistration | None":
    """The registration of this node's controller; None if other nodes cannot reach one here."""
    settings = context.settings
    if not settings.controller_listener_names or "controller" not in settings.process_roles:
        return None
    from sparklog_server.broker.cluster.broker_lifecycle import ControllerRegistration

    return ControllerRegistration(context, parts.incarnation_id)
