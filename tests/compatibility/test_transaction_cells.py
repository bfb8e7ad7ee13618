"""The transaction coordinator answers as a real Kafka does, in every cell of the table that a real Kafka
has filled in.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.agenda import Agenda
from sparklog_server.broker.broker import Broker
from sparklog_server.broker.coordinators.transaction_coordinator_service import (
    MarkersDone,
    Resolver,
    TransactionCoordinator,
    WriteMarkers,
)
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.continuations import Continuations
from sparklog_server.coordinator.txn.events import MarkersDue
from sparklog_server.replica.directory import Trace
from tests.broker.coordinators.participants import SETTINGS
from tests.broker.world import World
from tests.compatibility.transaction_cells import (
    HISTORIES,
    Cell,
    Outcome,
    Speaker,
    cells,
    outcome,
    overflow,
    prepare,
    set_level,
    table,
)
from tests.compatibility.transaction_kafka import kafka_speaker, measured


class HoldingCoordinator(TransactionCoordinator):
    """A transaction coordinator whose markers fail while `is_held`, as of a partition without a leader."""

    is_held = False

    def __init__(
        self,
        live: DynamicBrokerConfig,
        continuations: Continuations,
        agenda: Agenda,
        resolver: Resolver,
        write: WriteMarkers,
        *,
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        def write_unless_held(due: MarkersDue, epoch: int, done: MarkersDone, now: Instant) -> None:
            if self.is_held:
                done(dict.fromkeys(due.partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER), now)
            else:
                write(due, epoch, done, now)

        super().__init__(
            live, continuations, agenda, resolver, write_unless_held, entropy=entropy, trace=trace
        )


class HoldingBroker(Broker):
    """A broker whose markers may be held."""

    transactions = HoldingCoordinator

    def hold(self, *, is_held: bool) -> None:
        """Have markers fail from now on, or write them again."""
        coordinator = self._context.transactions
        assert isinstance(coordinator, HoldingCoordinator)
        coordinator.is_held = is_held


class OurSpeaker:
    """A connection to a simulated node."""

    def __init__(self) -> None:
        self._world = World(1, broker_class=HoldingBroker, **SETTINGS)
        self._world.node.start()
        self._world.settle()
        self._client = self._world.node.connect()

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        expected = len(self._client.replies) + 1
        self._client.send(request, version, reply)
        self._world.settle(20)
        while len(self._client.replies) < expected:
            self._world.settle(20)
        return self._client.replies[-1]

    def hold(self, *, is_held: bool) -> None:
        broker = self._world.node.running
        assert isinstance(broker, HoldingBroker)
        broker.hold(is_held=is_held)


def ours(speaker: Speaker, asked: Iterable[Cell]) -> dict[Cell, Outcome]:
    """The replies of this coordinator in these cells."""
    prepare(speaker)
    found: dict[Cell, Outcome] = {}
    level = 2
    for cell in asked:
        if cell.cluster != level:
            level = cell.cluster
            set_level(speaker, level)
        found[cell] = outcome(speaker, cell, f"id-{len(found)}")
    return found


def difference(kafka: dict[Cell, Outcome], other: dict[Cell, Outcome]) -> list[str]:
    """The cells that differ, a line each."""
    return [
        f"{cell}\n  kafka {told}\n  other {other[cell]}"
        for cell, told in kafka.items()
        if other[cell] != told
    ]


def test_the_table_has_every_cell() -> None:
    assert list(table()) == [cell for cluster in (2, 1) for cell in cells(cluster)]


def test_we_answer_as_kafka_does_after_the_first_history_of_every_state() -> None:
    first = [histories[0] for histories in HISTORIES.values()]
    kafka = {cell: told for cell, told in table().items() if cell.cluster == 2 and cell.history in first}
    assert difference(kafka, ours(OurSpeaker(), kafka)) == []


@pytest.mark.long
def test_we_answer_as_kafka_does_in_every_cell() -> None:
    kafka = table()
    assert difference(kafka, ours(OurSpeaker(), kafka)) == []


@pytest.mark.compat
@pytest.mark.long
def test_kafka_answers_as_the_table_says(tmp_path: Path) -> None:
    assert difference(table(), measured(tmp_path)) == []


@pytest.mark.compat
@pytest.mark.long
def test_we_answer_as_kafka_does_when_epochs_run_out(tmp_path: Path) -> None:
    speaker = OurSpeaker()
    prepare(speaker)
    told = overflow(speaker)
    with kafka_speaker(tmp_path) as kafka:
        assert told == overflow(kafka)
