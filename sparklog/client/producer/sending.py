"""One turn of a producer's worker: it sends batches and processes replies.

`Accumulator` gathers batches under the producer's lock; `Outbound` and the network belong to the worker
(`turns.py`), which holds the lock only while it touches the accumulator.

    batches ─► requests ─► network ─► answers ─► batches that are done ─► callbacks
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from sparklog.client.cluster import Entropy
from sparklog.client.failures import DeliveryFailed
from sparklog.client.producer.accumulator import Accumulator, Gathering
from sparklog.client.producer.exchange import Exchange, deliver, ship
from sparklog.client.producer.intake import Intake, Partitioner
from sparklog.client.producer.outbound import Outbound
from sparklog.client.producer.outbound_batch import Done, OutboundBatch
from sparklog.client.producer.records import nothing_of
from sparklog.client.producer.timeouts import topic_is_late, topic_refusal
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.model import Micros
from sparklog.record.compression import Codec

_MS: Final = 1000
_SLEEP_US_MAX: Final = 60_000_000


class ProducerNetwork(Exchange, Protocol):
    """The network of a producer."""

    refusal: SparklogError | None
    """The error of a connection that the same settings will meet again; the caller that acts on it resets it.
    """

    @property
    def last_error(self) -> SparklogError | None:
        """The last error of a connection."""

    def next_event(self, until: Micros, now: Micros) -> Micros:
        """The time at which the network has work without an event, `until` at the latest."""

    def wake(self) -> None:
        """End the sleep of the thread that waits for the network."""


class Sending:
    """`turns.Work` of a producer. Invariant: a batch that was appended is published once."""

    def __init__(
        self,
        settings: ClientSettings,
        network: ProducerNetwork,
        entropy: Entropy,
        lock: AbstractContextManager[bool],
        notify: Callable[[], None],
        partitioner: Partitioner | None = None,
    ) -> None:
        self.accumulator = Accumulator(settings)
        self.intake = Intake(self.accumulator, network.cluster, network.now, entropy, partitioner)
        self.outbound = Outbound(settings, network.cluster, entropy)
        self.transaction = self.outbound.transaction
        self.is_stuck = False
        self.callbacks: deque[Callable[[], object]] = deque()
        self._settings = settings
        self._codec = Codec[settings.compression_type.upper()]
        self._network = network
        self._lock = lock
        self.wake = network.wake
        self.notify = notify
        self._finished: list[tuple[Gathering, Done]] = []
        self._published = (0, 0)
        self._is_calling = False

    # -- by the worker, without the lock ---------------------------------------------------------------------

    def ship(self) -> Micros:
        """Send ready batches; returns the time up to which batches were due."""
        now = self._network.now()
        self.is_stuck = not self._ship(now) or self.accumulator.has_full or self.outbound.has_waiting
        return now

    def turn(self) -> Micros:
        """Send ready batches and process replies, without waiting; returns the time up to which work
        was due.
        """
        now = self._network.now()
        with self._lock:
            late = self.accumulator.expired(Micros(now - self._settings.delivery_timeout_ms * _MS))
        for batch in late:
            trouble = self._network.trouble
            why = "" if trouble is None else f"{trouble}: "
            error = DeliveryFailed(
                batch.topic_partition,
                f"{why}the record was not sent to its leader within delivery_timeout_ms",
            )
            self.outbound.failed_elsewhere(error)
            self._finished.append((batch, Done(nothing_of(batch), error=error)))
        self._place(now)
        self._ship(now)
        self._finish(deliver(self._network, self.outbound, now))
        if self._place(now):
            # Their first batch may need a producer id, a connection, or a partition in the transaction.
            self._ship(now)
            self._finish(deliver(self._network, self.outbound, now))
        self._ship(now)  # uses the room that replies have made
        return now

    # -- under the lock --------------------------------------------------------------------------------------

    @property
    def has_callbacks(self) -> bool:
        """Whether callbacks wait for a thread. A thread that runs callbacks also runs those added
        meanwhile.
        """
        return bool(self.callbacks) and not self._is_calling

    def publish(self) -> bool:
        """Mark finished batches as done. Returns whether there were any, or whether another condition that a
        thread may wait for has changed.
        """
        transaction = self.transaction
        published = (self._network.cluster.answers, 0 if transaction is None else transaction.ended)
        if not self._finished and published == self._published:
            return False
        self._published = published
        for batch, done in self._finished:
            batch.done = done
            for held, index in batch.held or ():
                held.done = done.of(index)
            batch.held = None
            self.accumulator.released(batch)
            self.callbacks += batch.callbacks
            batch.callbacks = []
        self._finished.clear()
        return True

    def call(self, run: Callable[[Callable[[], object]], None]) -> None:
        """Run the callbacks in order, with the lock released meanwhile."""
        if self._is_calling:
            return
        self._is_calling = True
        try:
            while self.callbacks:
                run(self.callbacks.popleft())
        finally:
            self._is_calling = False

    def lingers_until(self, now: Micros) -> Micros | None:
        """The time at which the next open batch has lingered."""
        return self.accumulator.deadline(now)

    def due(self, now: Micros, *, is_in_background: bool = False) -> Micros:
        """The time at which there is work without an event, apart from work that was due at `now`; no thread
        works.
        """
        outbound = self.outbound.deadline(now)
        until = self._network.next_event(Micros(now + _SLEEP_US_MAX) if outbound is None else outbound, now)
        lingered = self.accumulator.deadline(now)
        until = until if lingered is None else min(until, lingered)
        held_until = self.intake.deadline()
        until = until if held_until is None else min(until, held_until)
        if not is_in_background:
            return until
        # While batches are being sent, a short sleep is cheaper than a wake-up for each that lingers. Without
        # batches the sleep is no longer than a request may take, so that a thread that sends one need not
        # wake the background thread for the time limit of its request.
        settings = self._settings
        nap_ms = max(settings.linger_ms, 1) if self.accumulator.incomplete else settings.request_timeout_ms
        return min(until, Micros(self._network.now() + nap_ms * _MS))

    def give_up(self, error: SparklogError) -> None:
        """Fail every batch that is not done, also one that an interrupted turn has lost; no thread works."""
        self.intake.held.clear()
        done = {batch for batch, _ in self._finished}
        self._finished += [
            (batch, Done(nothing_of(batch), error=error))
            for batch in self.accumulator.incomplete
            if batch not in done
        ]

    # -- inside ----------------------------------------------------------------------------------------------

    def _place(self, now: Micros) -> bool:
        """Request the metadata that held records wait for, add those whose topic is known, and fail those
        that cannot be added. Returns whether a topic has no held records any more.
        """
        intake, network = self.intake, self._network
        if not intake.held:
            return False
        connection_refusal = network.refusal
        with self._lock:
            network.cluster.want(intake.held)
            count = len(intake.held)
            failed = intake.place(
                now,
                lambda topic: self._refusal(topic, connection_refusal),
                lambda topic: topic_is_late(network, self._settings, topic),
            )
        for batch, error in failed:
            if error is connection_refusal:
                network.refusal = None
            self.outbound.failed_elsewhere(error)
            self._finished.append((batch, Done(nothing_of(batch), error=error)))
        return len(intake.held) < count

    def _refusal(self, topic: str, connection_refusal: SparklogError | None) -> SparklogError | None:
        """The error of held records of a topic that waiting does not resolve."""
        if self.transaction is not None and self.transaction.refusal is not None:
            return self.transaction.refusal
        if topic in self._network.cluster.topics:
            return None
        return connection_refusal or topic_refusal(self._network, topic)

    def _ship(self, now: Micros) -> bool:
        """Send ready batches while there is room for one more of a partition; returns whether there
        were any.
        """
        has_shipped = False
        while True:
            with self._lock:
                taken = self.accumulator.take(now, self.outbound.has_room)
            if not taken:
                return has_shipped
            has_shipped = True
            for batch in taken:
                records = batch.builder.build(
                    codec=self._codec, compression_level=self._settings.compression_level
                )
                deadline = Micros(batch.created + self._settings.delivery_timeout_ms * _MS)
                self.outbound.add(
                    OutboundBatch(batch.topic_partition, records, batch.builder.record_count, deadline, batch)
                )
            self._finish(ship(self._network, self.outbound, now))

    def _finish(self, finished: list[Done]) -> None:
        for done in finished:
            assert isinstance(done.batch.context, Gathering)
            self._finished.append((done.batch.context, done))
