"""A history of transactions from a seed: transactors, their younger incarnations and readers, and a broker
that is killed and paused.

    set up ─► several seconds of all clients and faults at once
           ─► the broker runs, and the last incarnations fence the rest ─► all partitions are read to the end
"""

from random import Random

from sparklog.model import TopicPartition
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster import SimulatedNode
from sparklog_server.simulation.disk import SimulatedDisk
from sparklog_server.simulation.history import History
from sparklog_server.simulation.line import Line, SimulatedRequest, Steps
from sparklog_server.simulation.readers import Readers
from sparklog_server.simulation.transactors import Transactor

TOPIC = "t"
_SETTINGS = {
    "log.dirs": "/data",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
_PARTITIONS = 3
_IDS = 4
_TRANSACTIONS = 15  # of one incarnation
_ENDS_US = 3_000
_RUNS_US = 6_000_000
_RESTS_US = 8_000_000
_SETTLES_US = 60_000_000


def run(
    seed: int,
    *,
    broker_class: type[Broker] = Broker,
    settings: dict[str, str] | None = None,
    disk_fills: bool = False,
) -> History:
    """The history of this seed; the same at each call. `broker_class` and `settings` allow planted faults.

    With `disk_fills`, other processes fill the disk at times, up to the last bytes.
    """
    return _World(seed, broker_class, settings or {}, disk_fills=disk_fills).run()


class _World:
    def __init__(
        self, seed: int, broker_class: type[Broker], settings: dict[str, str], *, disk_fills: bool
    ) -> None:
        self._random = Random(seed)  # noqa: S311 - a reproducible seed needs no secure random numbers
        self._clock = VirtualClock()
        broker_settings = BrokerSettings.of(_SETTINGS | settings)
        of_broker = Random(seed + 1)  # noqa: S311 - likewise
        self._disk = SimulatedDisk()
        self._disk_fills = disk_fills
        self._node = SimulatedNode(
            self._clock, of_broker, self._disk, broker_settings, broker_class=broker_class
        )
        self._history = History()
        self._partitions = tuple(TopicPartition(TOPIC, index) for index in range(_PARTITIONS))
        self._readers = Readers(self._clock, self._random, self._history, self._partitions)
        self._groups = tuple(f"g{number}" for number in range(2))
        self._incarnations = [0] * _IDS
        self._versions = [self._random.choice((1, 2)) for _ in range(_IDS)]
        self._is_over = False
        self._lines: list[Line] = []

    def run(self) -> History:
        self._node.start()
        self._let("setup", self._set_up())
        self._wait(_SETTLES_US)
        for number in range(_IDS):
            self._incarnate(number)
        for name, is_committed in (("committed", True), ("committed-too", True), ("all", False)):
            self._let(name, self._readers.follow(name, self._ended, is_committed=is_committed))
        self._let("groups", self._readers.watch(self._groups, self._ended))
        self._clock.after(self._random.randint(50_000, 500_000), self._strike)
        self._clock.after(self._random.randint(50_000, 500_000), self._succeed)
        if self._disk_fills:
            self._clock.after(self._random.randint(50_000, 500_000), self._fill)
        self._clock.run(until_us=self._clock.now.mono_us + _RUNS_US)
        self._is_over = True
        self._disk.capacity_bytes = None
        if self._node.broker is None:
            self._start()
        self._resume()
        self._wait(_SETTLES_US)
        for transactions in (1, 0):  # the last one only ends transactions that its predecessor left open
            for number in range(_IDS):
                self._incarnate(number, transactions=transactions)
            self._wait(_SETTLES_US)
        self._clock.run(until_us=self._clock.now.mono_us + _RESTS_US)
        self._let("end", self._readers.conclude(self._groups))
        self._wait(_SETTLES_US)
        assert self._node.halted is None, self._node.halted
        return self._history

    def _ended(self) -> bool:
        return self._is_over

    def _let(self, name: str, steps: Steps) -> None:
        self._lines.append(Line(self._clock, self._random, self._node, name, steps))

    def _wait(self, at_most_us: int) -> None:
        """Let time pass until all clients are done."""
        until_us = self._clock.now.mono_us + at_most_us
        while any(not line.is_done for line in self._lines):
            assert self._clock.now.mono_us < until_us, "clients that do not end"
            self._clock.run(until_us=self._clock.now.mono_us + 50_000)

    def _set_up(self) -> Steps:
        topics = [CreatableTopic(name=TOPIC, num_partitions=_PARTITIONS, replication_factor=1)]
        yield from _until_done(
            SimulatedRequest(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, CreateTopicsResponse)
        )
        for key_type, keys in ((0, list(self._groups)), (1, [f"x{number}" for number in range(_IDS)])):
            yield from _until_done(
                SimulatedRequest(
                    FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys),
                    4,
                    FindCoordinatorResponse,
                )
            )

    # -- clients

    def _incarnate(self, number: int, *, transactions: int = _TRANSACTIONS) -> None:
        """Start another incarnation of a transactional id, whether or not the previous one is still
        running.
        """
        self._incarnations[number] += 1
        transactor = Transactor(
            self._clock,
            self._random,
            self._history,
            transactional_id=f"x{number}",
            incarnation=self._incarnations[number],
            is_v2=self._versions[number] == 2,
            timeout_ms=1_000 if number == _IDS - 1 else 60_000,
            partitions=self._partitions,
            readers=self._readers,
            group=self._groups[number] if number < len(self._groups) else None,
        )
        self._let(f"x{number}#{self._incarnations[number]}", transactor.life(transactions))

    def _succeed(self) -> None:
        """Replace an incarnation at times; the older one continues until it is fenced."""
        if not self._is_over:
            self._incarnate(self._random.randrange(_IDS))
            self._clock.after(self._random.randint(100_000, 900_000), self._succeed)

    # -- faults of the broker

    def _strike(self) -> None:
        """Cut its power, kill it or pause it; it is started or resumed later."""
        if self._is_over:
            return
        random, clock = self._random, self._clock
        what = random.random()
        if self._node.broker is not None and what < 0.6:
            is_power_cut = what < 0.4
            self._note("loses power" if is_power_cut else "is killed")
            self._node.kill(is_power_cut=is_power_cut)
            clock.after(random.randint(1_000, 500_000), self._start_again)
        elif self._node.broker is not None:
            self._note("is paused")
            self._node.pause()
            clock.after(random.randint(10_000, 1_500_000), self._resume)
        clock.after(random.randint(200_000, 1_500_000), random.choice((self._strike, self._lurk)))

    def _lurk(self) -> None:
        """Inject a fault while a transaction ends: a few milliseconds lie between the decision and the last
        marker.
        """
        now_us = self._clock.now.mono_us
        is_ending = any((txn.ended_us or 0) > now_us - _ENDS_US for txn in self._history.transactions)
        if not self._is_over:
            self._clock.after(self._random.randint(0, _ENDS_US), self._strike if is_ending else self._lurk)

    def _fill(self) -> None:
        """Leave a few bytes of the disk free, or none, for a while."""
        if not self._is_over:
            left = self._random.choice((0, 500, 5_000, 50_000))
            self._note(f"has {left} bytes left")
            self._disk.capacity_bytes = self._disk.used_bytes + left
            self._clock.after(self._random.randint(10_000, 1_500_000), self._free)

    def _free(self) -> None:
        if not self._is_over:
            self._note("has room")
            self._disk.capacity_bytes = None
            self._clock.after(self._random.randint(100_000, 1_000_000), self._fill)

    def _start_again(self) -> None:
        if self._node.broker is None:
            self._start()

    def _start(self) -> None:
        self._note("starts")
        self._node.start()

    def _resume(self) -> None:
        if self._node.broker is not None:
            self._note("runs")
            self._node.resume()

    def _note(self, words: str) -> None:
        self._history.events.append((self._clock.now.mono_us, words))


def _until_done(ask: SimulatedRequest) -> Steps:
    """Repeat the request until it succeeds."""
    while True:
        answer = yield ask
        if isinstance(answer, CreateTopicsResponse) and answer.topics[0].error_code in (0, 36):
            return
        if isinstance(answer, FindCoordinatorResponse) and not any(
            one.error_code for one in answer.coordinators
        ):
            return
        yield 50_000
