"""The transaction coordinator answers as a real Kafka does, in every cell of the table that a real Kafka
has filled in.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from sparklog.wire.schema import Message
from sparklog_server.broker.broker import Broker
from sparklog_server.broker.coordinators.marker_channels import marker_writer
from sparklog_server.broker.coordinators.transaction_coordinator_service import nobody_writes
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


class HoldingBroker(Broker):
    """A broker whose markers may be held."""

    def hold(self, *, is_held: bool) -> None:
        """Have markers fail from now on, as where their partition has no leader, or write them again."""
        self._context.transactions.write = nobody_writes if is_held else marker_writer(self._context)


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
