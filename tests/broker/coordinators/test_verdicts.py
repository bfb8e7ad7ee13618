"""Very many transactions of a sink whose time is over at once: what is to become of them is asked a few at
a time.
"""

from sparklog.model import Instant, Micros, Millis, ProducerEpoch, ProducerId
from sparklog_server.agenda import Agenda
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.coordinator.txn.events import Answer as Outcome
from sparklog_server.coordinator.txn.events import VerdictDue
from sparklog_server.metadata.image import MetadataImage

NOW = Instant(Micros(0), Millis(0))
OVERDUE = 100


class Asked:
    """A resolver that knows nothing and counts the calls."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.deadline_us = None

    def tick(self, now: Instant) -> None:
        """It needs no time."""

    def verdict(self, transactional_id: str, producer_id: int, producer_epoch: int, now: Instant) -> Outcome:
        self.ids.append(transactional_id)
        return Outcome.ASK_AGAIN


def writes_none(*_: object) -> None:
    raise AssertionError("no marker is due")


def test_no_turn_asks_about_more_than_a_few_transactions_and_in_the_end_all_are_asked_about() -> None:
    live = DynamicBrokerConfig(BrokerSettings.of({}), lambda *_, **__: None)
    agenda, asked = Agenda(), Asked()
    transactions = TransactionCoordinator(
        live, Continuations(), agenda, asked, writes_none, entropy=bytes, trace=lambda *_, **__: None
    )
    names = [f"sl.sink.0.{number}.u" for number in range(OVERDUE)]
    for number, name in enumerate(names):
        transactions.requested(VerdictDue(name, ProducerId(number), ProducerEpoch(0)))
    turns = 0
    while transactions.has_more_due:
        before = len(asked.ids)
        agenda.has_coordination = False
        transactions.resume()
        assert agenda.has_coordination
        for _ in range(2):  # the second of a turn finds no room
            transactions.write_due(MetadataImage(), NOW)
        assert len(asked.ids) - before <= 4
        turns += 1
    assert asked.ids == names
    assert turns == OVERDUE / 4
