"""Sends a producer's batches: two machines and the threads that drive them.

`Accumulator` gathers (under `lock`), `Outbound` sends (under `_io`). Three may drive the sending, never
two at once:

    a thread that closes a batch ──┐
    a thread that waits ───────────┼─► a turn: batches ─► requests ─► network ─► answers ─► waiting threads are notified
    the background thread ─────────┘

Python lets a thread wait up to 5 ms after each of its system calls while another thread computes. For this
reason the threads that fill batches or wait for them drive the sending: the background thread leaves the
network alone for `ATTENDED_US` after each such turn. No thread waits for the network while holding a lock.
Lock order: `_io`, then `lock`.
"""  # noqa: E501

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from sparklog.client.accumulator import Accumulator, Gathering
from sparklog.client.delivery import deliver, ship
from sparklog.client.failures import ClientClosed, DeliveryFailed
from sparklog.client.outbound import Done, Outbound, OutboundBatch
from sparklog.client.producer_records import nothing_of
from sparklog.client.settings import ClientSettings
from sparklog.client.transport import Network, entropy, now_us
from sparklog.errors import SparklogError
from sparklog.model import Micros
from sparklog.record.compression import Codec

ATTENDED_US: Final = 2_000
"""How long somebody who has driven is expected back: batches follow each other faster than that where it
matters.
"""

_MS: Final = 1000
_SLEEP_US_MAX: Final = 60_000_000


class Sender:
    """The sending half of a producer. `changed` is told of batches that are done, operations that have
    ended, and news of the cluster.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._codec = Codec[settings.compression_type.upper()]
        self.network = Network(settings, can_be_woken=True)
        self._outbound = Outbound(settings, self.network.cluster, entropy)
        self.transaction = self._outbound.transaction
        self.accumulator = Accumulator(settings)
        self.io = threading.Lock()  # network and outbound
        self.lock = threading.Lock()  # accumulator, callbacks and the flags below
        self.changed = threading.Condition(self.lock)
        self.waits_until = Micros(0)
        """Until when the background thread sleeps; 0 while it works, or is being woken."""
        self.is_closed = False
        self._finished: deque[tuple[Gathering, Done]] = deque()
        self._callbacks_running = threading.Lock()
        self._attending = (
            threading.Lock()
        )  # held by the waiting thread that drives: no other thread receives replies meanwhile
        self._attends_until = Micros(0)  # until when that one sleeps; 0 while it works, or is being woken
        self._attender = 0  # its thread; 0 for none
        self._attended_until = Micros(0)
        self._metadata_answers = self._operations_ended = 0
        self._is_wanted = False
        self._is_asleep = False  # the background thread, for longer than ATTENDED_US
        self._thread = threading.Thread(target=self._run, name="sparklog-producer", daemon=True)
        self._thread.start()

    def close(self, error: SparklogError) -> None:
        """Give up the remaining batches, and drop the connections."""
        self.is_closed = True
        self.network.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.network.wake()  # the first may have been for the thread
        # A callback may close, and run in the thread that attends.
        with (
            contextlib.nullcontext() if self._attender == threading.get_ident() else self._attending,
            self.io,
        ):
            self._give_up(error)
            self.network.close()
        self._run_callbacks()
        with self.changed:
            self.changed.notify_all()  # threads that wait for a topic wait for no batch

    # -- in any thread ---------------------------------------------------------------------------------------

    def drive(self) -> None:
        """Send what is ready; if another thread is at it, that one looks again."""
        self._is_wanted = True
        while self._is_wanted and self.io.acquire(blocking=False):
            try:
                self._is_wanted = False
                if self.is_closed:
                    return
                now = now_us()
                self._attended_until = Micros(now + ATTENDED_US)
                # Answers are looked for where they are needed: several come at once then.
                is_stuck = not self._ship(now) or self.accumulator.has_full
                if self._attending.locked():
                    if is_stuck or self._next_turn(now) < self._attends_until:
                        self.network.wake()
                else:
                    if is_stuck:
                        now = self._turn()
                    if self.waits_until > self._attended_until and self._next_turn(now) < self.waits_until:
                        self.network.wake()
            finally:
                self.io.release()
        self._run_callbacks()

    def look_again(self) -> None:
        """Run a turn if another thread asked for one while `io` was held for other work."""
        if self._is_wanted:
            self.drive()

    def wait(self, is_over: Callable[[], bool], deadline: Micros | None) -> bool:
        """Drive, or leave it to another thread, until something is over; False if that is not the case by
        the deadline, or at a close.
        """
        is_told = False
        while not is_over():
            now = now_us()
            if self.is_closed or (deadline is not None and now >= deadline):
                return False
            if self._attending.acquire(blocking=False):
                self._attender = threading.get_ident()
                try:
                    self._attend(is_over, deadline)
                finally:
                    self._attended_until = Micros(now_us() + ATTENDED_US)
                    self._attender = 0
                    self._attending.release()
                    if self._is_asleep:
                        self.network.wake()  # replies that arrived meanwhile were delivered to this thread
            else:
                if not is_told:
                    # the attending thread has not seen the condition that this thread waits for
                    self.network.wake()
                    is_told = True
                with self.changed:
                    if not is_over():
                        self.changed.wait(None if deadline is None else (deadline - now) / 1e6)
        return True

    def wait_for(self, batch: Gathering, deadline: Micros | None) -> Done | None:
        """Drive until a batch is done; None if it is not by the deadline. A close leaves none that is not."""
        if batch.done is None and not self.wait(lambda: batch.done is not None, deadline) and self.is_closed:
            with self.changed:
                self.changed.wait_for(lambda: batch.done is not None)
        return batch.done

    def _attend(self, is_over: Callable[[], bool], deadline: Micros | None) -> None:
        while True:
            with self.io:
                if self.is_closed:
                    return
                self._is_wanted = False
                until = self._next_turn(self._turn(), is_attending=True)
            self._run_callbacks()
            if self.is_closed or is_over() or (deadline is not None and now_us() >= deadline):
                return
            if not self._is_wanted:
                self.network.wait(until if deadline is None else min(until, deadline))
            self._attends_until = Micros(0)

    def _turn(self) -> Micros:
        """Ready batches into the machine, the machine's requests into the network, answers back; without
        waiting. `io` is held.

        Returns the time against which it judged due batches.
        """
        now = now_us()
        with self.lock:
            late = self.accumulator.expired(Micros(now - self._settings.delivery_timeout_ms * _MS))
        for batch in late:
            error = DeliveryFailed(
                batch.topic_partition, "the record found no way to its leader within delivery_timeout_ms"
            )
            self._outbound.failed_elsewhere(error)
            self._finished.append((batch, Done(nothing_of(batch), error=error)))
        self._ship(now)
        self._finish(deliver(self.network, self._outbound, now))
        self._ship(now)  # into the room that answers have made
        return now

    def _ship(self, now: Micros) -> bool:
        """Send ready batches, as long as there is room for one more of a partition; whether there were
        any.
        """
        has_shipped = False
        while True:
            with self.lock:
                taken = self.accumulator.take(now, self._outbound.has_room)
            if not taken:
                return has_shipped
            has_shipped = True
            for batch in taken:
                records = batch.builder.build(
                    codec=self._codec, compression_level=self._settings.compression_level
                )
                deadline = Micros(batch.created + self._settings.delivery_timeout_ms * _MS)
                self._outbound.add(
                    OutboundBatch(batch.topic_partition, records, batch.builder.record_count, deadline, batch)
                )
            self._finish(ship(self.network, self._outbound, now))

    def _finish(self, finished: list[Done]) -> None:
        for done in finished:
            assert isinstance(done.batch.context, Gathering)
            self._finished.append((done.batch.context, done))

    def _give_up(self, error: SparklogError) -> None:
        with self.lock:
            left = self.accumulator.abandon()
        self._finish(self._outbound.give_up(error))
        for batch in left:
            self._finished.append((batch, Done(nothing_of(batch), error=error)))

    def _run_callbacks(self) -> None:
        """Publish finished batches, in order: one thread at a time, and never inside a callback of its
        own.
        """
        while (
            self._finished
            or self._metadata_answers != self.network.cluster.answers
            or self._has_ended_operation()
        ):
            if not self._callbacks_running.acquire(blocking=False):
                return
            try:
                self._publish()
            finally:
                self._callbacks_running.release()

    def _has_ended_operation(self) -> bool:
        return self.transaction is not None and self.transaction.ended != self._operations_ended

    def _publish(self) -> None:
        callbacks: list[Callable[[], None]] = []
        with self.changed:
            self._metadata_answers = self.network.cluster.answers
            self._operations_ended = 0 if self.transaction is None else self.transaction.ended
            while self._finished:
                batch, done = self._finished.popleft()
                batch.done = done
                self.accumulator.released(batch)
                callbacks += batch.callbacks
                batch.callbacks = []
            self.changed.notify_all()
        if self._attending.locked() and self._attender != threading.get_ident():
            self.network.wake()  # it may already have checked the condition it waits for
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                threading.excepthook(
                    threading.ExceptHookArgs(
                        (type(error), error, error.__traceback__, threading.current_thread())
                    )
                )

    # -- the background thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            # A bug in the client: no thread may wait for batches that will never be sent.
            self.is_closed = True
            with self.io:
                self._give_up(ClientClosed(f"the producer's thread broke: {error!r}"))
            self._run_callbacks()
            self.network.wake()
            with self.changed:
                self.changed.notify_all()
            raise

    def _work(self) -> None:
        while not self.is_closed:
            if self._is_attended():
                continue
            with self.io:
                # An attending thread has checked its condition and sleeps until a reply: no other thread may
                # take the reply.
                is_ours = not self._attending.locked()
                if is_ours:
                    self._is_wanted = False
                    until = self._next_turn(self._turn(), is_going_to_sleep=True)
            if not is_ours:
                self.network.wake()  # a thread that found `io` held meanwhile relies on another turn
                continue
            self._run_callbacks()
            if not self._is_wanted and not self.is_closed:
                self.network.wait(until)
            self._is_asleep = False
            self.waits_until = Micros(0)
            if self._attending.locked():
                self.network.wake()  # the wake-up may have been meant for the attending thread

    def _is_attended(self) -> bool:
        """Whether another thread drives: then this one has slept a while.

        Beside one that drove lately it looks itself if it is woken, or a batch has lingered; one that
        waits is woken for that.
        """
        if self._attending.locked():
            time.sleep(ATTENDED_US / 1e6)
            return True
        now = now_us()
        until = self._attended_until
        if now >= until:
            return False
        with self.lock:
            lingered = self.accumulator.deadline(now)
            until = until if lingered is None else min(until, lingered)
            self.waits_until = until
        was_woken = self.network.pause(until)
        self.waits_until = Micros(0)
        return not was_woken and (lingered is None or now_us() < lingered)

    def oversleeps(self, moment: Micros) -> bool:
        """Whether nobody drives before then unless woken, of which only the first is told who asks; `lock`
        is held.
        """
        if self._attending.locked():
            if moment < self._attends_until:
                self._attends_until = Micros(0)
                return True
        elif moment < self.waits_until:
            self.waits_until = Micros(0)
            return True
        return False

    def _next_turn(
        self, now: Micros, *, is_going_to_sleep: bool = False, is_attending: bool = False
    ) -> Micros:
        """When there is something to do without anything having happened, of what was not due at `now`,
        the turn's. `io` is held.
        """
        outbound = self._outbound.deadline(now)
        until = self.network.next_event(Micros(now + _SLEEP_US_MAX) if outbound is None else outbound, now)
        with self.lock:
            lingered = self.accumulator.deadline(now)
            until = until if lingered is None else min(until, lingered)
            if is_going_to_sleep:
                # Batches come and go: a short sleep is cheaper than being woken for the linger of each. Else
                # no longer than a request may take: whoever sends one meanwhile need not wake us for its time
                # limit.
                is_busy, settings = bool(self.accumulator.incomplete), self._settings
                until = min(
                    until,
                    Micros(
                        now_us()
                        + (max(settings.linger_ms, 1) if is_busy else settings.request_timeout_ms) * _MS
                    ),
                )
                # Under the lock: a record that comes later sees it, and wakes us if it cannot wait that long.
                self.waits_until = until
                self._is_asleep = True
            elif is_attending:
                self._attends_until = until
        return until
