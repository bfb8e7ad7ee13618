"""Machines in virtual time: each has a disk, a clock and one process, and a network joins them.

    process ── effects ──► machine ── bytes ──► network ──► machine ── calls ──► process
                             │                                ▲
                             └── syncs, jobs, timers ─────────┘

A process is any object with the broker's calls and effects. Every event is a call of one process; a rolling
hash over time, node and bytes shows that a run repeats.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol
from zlib import crc32

from sparklog.effects import (
    Chunk,
    Disconnect,
    Effect,
    FileSlice,
    Halt,
    LinkId,
    Loss,
    Reply,
    Run,
    SendTo,
    Sync,
)
from sparklog.effects import release as release_chunks
from sparklog.model import Instant, Micros, NodeId, SessionId, Ticket
from sparklog_server.disk.door import StorageError
from sparklog_server.simulation.clock import START_US, NodeClock, VirtualClock
from sparklog_server.simulation.disk import DiskImage, PendingSync, SimulatedDisk
from sparklog_server.simulation.network import End, Network
from sparklog_server.simulation.randomness import random_for

_SYNC_US = (300, 3_000)
_JOB_US = (50, 2_000)
_RESTART_US = 500_000  # after a process has halted
_RATE_PPM_MAX = 200
_TICKS_MAX = 100  # of one process at the same time


class Process(Protocol):
    """A process: it gets calls and answers each with effects."""

    def start(self, now: Instant) -> list[Effect]:
        """The first call."""

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        """A machine has connected to a port of this one."""

    def received(self, session: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """Bytes of a session."""

    def disconnected(self, session: SessionId, now: Instant) -> list[Effect]:
        """The session has ended."""

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        """Bytes on a link."""

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """The link is lost; called once, and not for a link that the process closed."""

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """A sync or a job has ended."""

    def tick(self, now: Instant) -> list[Effect]:
        """The deadline has passed."""

    def deadline(self) -> Micros | None:
        """The time of the next `tick`."""

    def begin_stop(self, now: Instant) -> list[Effect]:
        """Prepare for a clean stop."""

    def close(self, now: Instant) -> None:
        """The last call of a clean stop."""


class Violation(Exception):
    """A run broke an invariant, which `rule` names."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Machine:
    """One node's hardware and operating system, and the successive processes on it.

    Faults that stop the process are counted, because they overlap: the process runs while there is none.
    """

    def __init__(self, world: "World", node: NodeId) -> None:
        self.node = node
        self.world = world
        self.life = 0
        """The number of the current process."""
        self.process: Process | None = None
        self.halts: list[str] = []
        self.is_up = True
        self.disk = SimulatedDisk()
        random = random_for(world.seed, f"clock {node}")
        self.clock = NodeClock(
            world.clock,
            start_us=random.randrange(1_000_000, 1 << 40),
            rate_ppm=random.randint(-_RATE_PPM_MAX, _RATE_PPM_MAX),
        )
        self.random = random_for(world.seed, f"process {node}")
        self._disk_random = random_for(world.seed, f"disk {node}").random
        self._crash_random = random_for(world.seed, f"crash {node}")
        self._downs = 0
        self._pauses = 0
        self._hangs = 0
        self._hung: list[Callable[[], None]] = []  # syncs that do not return
        self._missed: list[Callable[[], None]] = []  # events of a paused process
        self._sessions = 0
        self._ends: dict[LinkId | SessionId, End] = {}
        self._deadline_us: Micros | None = None  # of the process, since its last turn
        self._ring_us: int | None = None
        self._ticked_us = 0
        self._ticks = 0  # at `_ticked_us`

    # -- the process and its faults

    @property
    def is_paused(self) -> bool:
        """Whether the process gets no calls."""
        return self._pauses > 0

    @property
    def is_listening(self) -> bool:
        """Whether the process runs; a paused one does, as its kernel completes connections."""
        return self.process is not None

    def start(self) -> None:
        """Start a process, unless a fault keeps the machine down."""
        if self._downs or self.process is not None:
            return
        self.is_up = True
        self.life += 1
        self.process = self.world.new_process(self)
        self.world.note(self.node, b"start")
        try:
            effects = self.process.start(self.clock.now)
        except StorageError as error:
            if not error.is_full:
                raise Violation("not-started", f"node {self.node}: {error}") from error
            effects = [Halt(str(error))]  # the process ends, and is started again
        self._turn(effects)

    def hold_down(self, *, is_power_cut: bool) -> None:
        """Kill the process, or cut the power of the machine, until `let_up`."""
        self._downs += 1
        self._end(is_power_cut=is_power_cut)
        if is_power_cut:
            self.is_up = False
            self.disk.crash(self._crash_random)

    def begin_stop(self) -> None:
        """Request a clean stop, which `stop` ends."""
        self.call(lambda process, now: process.begin_stop(now))

    def stop(self) -> None:
        """End a clean stop, and stay down until `let_up`; a paused process is killed."""
        if self.process is not None and not self._pauses:
            self.process.close(self.clock.now)
        self.hold_down(is_power_cut=False)

    def let_up(self) -> None:
        """End one `hold_down`; the process starts when the last one ends."""
        self._downs -= 1
        self.start()

    def replace_disk(self, image: DiskImage | None) -> None:
        """Put in an older state of the disk, or an empty disk, while the machine is down."""
        assert self.process is None
        self.disk.restore(image) if image is not None else self.disk.wipe()

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: it receives no calls until `resume`."""
        self._pauses += 1

    def resume(self) -> None:
        """End one `pause`. With the last, timers that are due come first, then the events missed."""
        self._pauses -= 1
        if self._pauses == 0 and self.process is not None:
            missed, self._missed = self._missed, []
            self._ring_us = None
            self._ring(self.life)
            for event in missed:
                event()

    def hang_syncs(self) -> None:
        """No sync returns until `release_syncs`."""
        self._hangs += 1

    def release_syncs(self) -> None:
        """End one `hang_syncs`."""
        self._hangs -= 1
        if self._hangs == 0:
            hung, self._hung = self._hung, []
            for event in hung:
                self.world.clock.after(self._delay_us(_SYNC_US), event)

    def _end(self, *, is_power_cut: bool) -> None:
        if self.process is None:
            return
        self.world.note(self.node, b"end")
        self.process = None
        self.life += 1
        self._missed.clear()
        self._hung.clear()
        self._ring_us = None
        network = self.world.network
        for end in self._ends.values():
            if is_power_cut:
                network.vanish(end)
            else:
                network.close(end)
        self._ends.clear()
        self.disk.restart()
        self.world.ended(self)

    # -- the network's calls

    def accepted(self, end: End) -> None:
        """A connection was established."""
        self._sessions += 1
        session = SessionId(self._sessions)
        end.key = session
        self._ends[session] = end
        link = end.peer.key
        assert isinstance(link, LinkId)
        self._event(partial(self._accepted, session, link.address[1]), b"accepted")

    def _accepted(self, session: SessionId, port: int) -> None:
        assert self.process is not None
        self._turn(self.process.connected(session, port, self.clock.now))

    def arrived(self, end: End, data: bytes) -> None:
        """Bytes on a link or of a session."""
        self._event(partial(self._arrived, end, data), data)

    def _arrived(self, end: End, data: bytes) -> None:
        process, key = self.process, end.key
        if process is None or key not in self._ends:
            return  # closed between its arrival and its reading
        if isinstance(key, LinkId):
            self._turn(process.link_received(key, data, self.clock.now))
        elif key is not None:
            self._turn(process.received(key, data, self.clock.now))

    def lost(self, end: End, loss: Loss) -> None:
        """A link or session is lost."""
        self._event(partial(self._lost, end, loss), loss.value.encode())

    def _lost(self, end: End, loss: Loss) -> None:
        process, key = self.process, end.key
        if process is None or key is None or self._ends.pop(key, None) is None:
            return
        if isinstance(key, LinkId):
            self._turn(process.link_lost(key, loss, self.clock.now))
        else:
            self._turn(process.disconnected(key, self.clock.now))

    # -- turns

    def _event(self, event: Callable[[], None], content: bytes) -> None:
        if self.process is None:
            return
        if self._pauses:
            self._missed.append(event)
        else:
            self.world.note(self.node, content)
            event()

    def call(self, call: Callable[[Process, Instant], list[Effect]]) -> None:
        """Call the process, for example with a client's request, unless it is down or paused."""
        if self.process is not None and not self._pauses:
            self.world.note(self.node, b"call")
            self._turn(call(self.process, self.clock.now))

    def _turn(self, effects: list[Effect]) -> None:
        """Carry out the effects of a call, set the timer, and check the invariants."""
        for effect in effects:
            if isinstance(effect, SendTo):
                self._send_to(effect)
            elif isinstance(effect, Reply):
                self._reply(effect)
            elif isinstance(effect, Sync):
                done = partial(self._synced, self.life, effect.ticket, self.disk.begin_sync(effect.files))
                self.world.sync_begins(self, effect)
                if self._hangs:
                    self._hung.append(done)
                else:
                    self.world.clock.after(self._delay_us(_SYNC_US), done)
            elif isinstance(effect, Run):
                job = partial(self._ran, self.life, effect)
                self.world.clock.after(self._delay_us(_JOB_US), job)
            elif isinstance(effect, Disconnect):
                end = self._ends.pop(effect.session, None)
                if end is not None:
                    self.world.network.close(end)
            elif isinstance(effect, Halt):
                self._halt(effect)
                return
        process = self.process
        assert process is not None
        deadline = self._deadline_us = process.deadline()
        if deadline is not None:
            at_us = max(self.clock.world_us(deadline), self.world.clock.us)
            if self._ring_us is None or at_us < self._ring_us:
                self._ring_us = at_us
                self.world.clock.at(at_us, partial(self._ring, self.life))
        self.world.check(self)

    def _halt(self, effect: Halt) -> None:
        self.halts.append(effect.reason)
        self._end(is_power_cut=False)
        self._downs += 1
        self.world.clock.after(_RESTART_US, self.let_up)

    def _ring(self, life: int) -> None:
        if life != self.life or self.process is None or self._pauses:
            return
        if self._ring_us is not None and self._ring_us > self.world.clock.us:
            return  # a later timer is set
        self._ring_us = None
        deadline = self._deadline_us
        if deadline is None:
            return
        now = self.clock.now
        if deadline <= now.mono_us:
            self._ticks = self._ticks + 1 if self._ticked_us == self.world.clock.us else 1
            self._ticked_us = self.world.clock.us
            if self._ticks > _TICKS_MAX:
                raise Violation("spins", f"node {self.node} wants a tick at {deadline} again and again")
            self.world.note(self.node, b"tick")
            self._turn(self.process.tick(now))
        else:
            self._ring_us = self.clock.world_us(deadline)
            self.world.clock.at(self._ring_us, partial(self._ring, life))

    def _send_to(self, effect: SendTo) -> None:
        end = self._ends.get(effect.link)
        network = self.world.network
        if end is None:
            target = self.world.node_at(effect.link.address)
            end = self._ends[effect.link] = network.open(self, target, effect.link)
        network.send(end, _joined(effect.chunks))
        release_chunks(effect.chunks)

    def _reply(self, effect: Reply) -> None:
        end = self._ends.get(effect.session)
        if end is not None:
            self.world.network.send(end, _joined(effect.chunks))
        release_chunks(effect.chunks)

    def _synced(self, life: int, ticket: Ticket, pending: PendingSync) -> None:
        """End a sync on the disk now; the process is called now, or after its pause."""
        if life != self.life:
            return
        error = None
        try:
            self.disk.finish_sync(pending)
        except StorageError as failed:
            error = failed
        else:
            self.world.sync_ended(self, ticket)
        self._event(partial(self._finished, ticket, error), b"synced")

    def _ran(self, life: int, run: Run) -> None:
        if life != self.life:
            return
        try:
            result = run.work()
        except StorageError as failed:
            result = failed
        self._event(partial(self._finished, run.ticket, result), b"ran")

    def _finished(self, ticket: Ticket, result: object) -> None:
        assert self.process is not None
        self._turn(self.process.finished(ticket, result, self.clock.now))

    def _delay_us(self, between_us: tuple[int, int]) -> int:
        low_us, high_us = between_us
        return low_us + int((high_us - low_us) * self._disk_random())


class Watch(Protocol):
    """An observer of a world; it raises Violation."""

    def check(self, machine: Machine) -> None:
        """The process of the machine has ended a turn."""

    def ended(self, machine: Machine) -> None:
        """The process of the machine has ended."""

    def disk_replaced(self, machine: Machine) -> None:
        """The disk of the machine was replaced by an older or an empty one."""

    def sync_begins(self, machine: Machine, sync: Sync) -> None:
        """A sync begins."""

    def sync_ended(self, machine: Machine, ticket: Ticket) -> None:
        """A sync has made its files durable."""


class World:
    """The machines of one run.

    `events` counts the calls of processes, and `digest` is a hash over them: two runs of one seed agree in
    both, also under another PYTHONHASHSEED.
    """

    def __init__(
        self,
        seed: int,
        nodes: Sequence[NodeId],
        new_process: Callable[[Machine], Process],
        watch: Watch,
        clock: VirtualClock | None = None,
    ) -> None:
        self.seed = seed
        self.clock = clock or VirtualClock()
        self.network = Network(self.clock, seed, nodes)
        self.new_process = new_process
        self.trace: Callable[[str], None] | None = None
        """Gets a line for each event that a process traces."""
        self.events = 0
        self.digest = 0
        self.check, self.ended, self.disk_replaced = watch.check, watch.ended, watch.disk_replaced
        self.sync_begins, self.sync_ended = watch.sync_begins, watch.sync_ended
        self.machines = {node: Machine(self, node) for node in nodes}
        for machine in self.machines.values():
            self.network.attach(machine)

    def start(self) -> None:
        """Start all machines."""
        for machine in self.machines.values():
            machine.start()

    def run(self, *, until_us: int) -> None:
        """Run until `until_us` of virtual time."""
        self.clock.run(until_us=until_us)

    def note(self, node: NodeId, content: bytes) -> None:
        """Count an event."""
        self.events += 1
        self.digest = crc32(content, (self.digest + self.clock.us * 64 + node) & 0xFFFFFFFF)

    def told(self, machine: Machine, event: str, fields: Mapping[str, object]) -> None:
        """Record an event that a process traces."""
        if self.trace is not None:
            at_ms = (self.clock.us - START_US) / 1000
            self.trace(
                " ".join((f"t={at_ms:.3f} n{machine.node} {event}", *(f"{k}={v}" for k, v in fields.items())))
            )

    def node_at(self, address: tuple[str, int]) -> NodeId:
        """The machine with an address: machine 2 is host `n2`."""
        return NodeId(int(address[0][1:]))


def address_of(node: NodeId) -> tuple[str, int]:
    """The address of a machine."""
    return f"n{node}", 9093


def _joined(chunks: list[Chunk]) -> bytes:
    return b"".join([chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks])
