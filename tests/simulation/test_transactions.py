"""Histories of transactions under power cuts, kills and pauses: the broker has no anomaly, and the checkers
find each planted fault.
"""

import pytest

from sparklog_server.simulation.checkers import check
from sparklog_server.simulation.history import Outcome
from sparklog_server.simulation.transaction_history import run
from tests.simulation.planted import PLANTED

SEEDS_MAX = 12  # the number of seeds within which a planted fault must be found


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 400))]
)
def test_a_history_of_transactions_is_as_promised_whatever_happens_to_the_broker(seed: int) -> None:
    history = run(seed)
    assert check(history) == []
    assert sum(txn.outcome is Outcome.COMMITTED for txn in history.transactions) > 10
    assert any(
        write.acked_us
        for txn in history.transactions
        for write in txn.writes
        if txn.outcome is Outcome.ABORTED
    )
    assert any(poll.records for poll in history.polls if poll.is_committed)
    assert any(txn.commits for txn in history.transactions if txn.outcome is Outcome.COMMITTED)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 200))]
)
def test_a_history_of_transactions_is_as_promised_though_the_disk_fills(seed: int) -> None:
    history = run(seed, settings={"sparklog.disk.reserve.bytes": "20000"}, disk_fills=True)
    assert check(history) == []
    assert sum(txn.outcome is Outcome.COMMITTED for txn in history.transactions) > 3


def test_the_same_seed_tells_the_same_history() -> None:
    assert run(3).told() == run(3).told()


@pytest.mark.parametrize("fault", sorted(PLANTED))
def test_a_planted_fault_is_found_within_few_seeds(fault: str) -> None:
    planted = PLANTED[fault]
    seed = next(
        (
            seed
            for seed in range(SEEDS_MAX)
            if check(run(seed, broker_class=planted.broker_class, settings=planted.settings))
        ),
        None,
    )
    assert seed is not None, f"{fault}: no seed below {SEEDS_MAX} shows it"
