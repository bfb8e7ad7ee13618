"""Histories of real clients, ours and confluent's, whose broker is killed and stopped under them: searched
like those of the simulation.
"""

import signal
import time
from pathlib import Path
from random import Random

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.model import TopicPartition
from sparklog_server.simulation.checkers import check
from sparklog_server.simulation.history import Outcome
from tests.compatibility.live_transactors import Ours, Recorder, Theirs
from tests.daemon.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
WRITERS: tuple[tuple[str, type[Ours] | type[Theirs], str | None], ...] = (
    ("ours", Ours, None),
    ("ours-too", Ours, "g0"),
    ("theirs", Theirs, None),
    ("theirs-too", Theirs, "g1"),
)


def broker(data_dir: Path, port: int) -> BrokerProcess:
    return BrokerProcess(
        *("--data-dir", str(data_dir), "--listen", f"127.0.0.1:{port}"),
        *("--set", "offsets.topic.num.partitions=2", "--set", "transaction.state.log.num.partitions=2"),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("lasts_s", "seed"),
    [(8, 1), *(pytest.param(60, seed, marks=pytest.mark.long) for seed in range(2, 5))],
    ids=lambda value: str(value),
)
def test_transactions_of_real_clients_are_as_promised_though_their_broker_is_killed_and_stopped(
    tmp_path: Path, lasts_s: int, seed: int
) -> None:
    random = Random(seed)
    process = broker(tmp_path, 0)
    try:
        host, port = process.address()
        servers = f"{host}:{port}"
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": len(PARTITIONS)})
        recorder = Recorder(servers, PARTITIONS, lasts_s=lasts_s)
        numbers = dict.fromkeys(range(len(WRITERS)), 0)
        threads = []

        def incarnate(index: int) -> None:
            numbers[index] += 1
            name, make, group = WRITERS[index]
            number, its_seed = numbers[index], random.randrange(1 << 30)
            threads.append(
                recorder.guarded(name, lambda: recorder.incarnation(make, name, number, group, its_seed))
            )

        for index in numbers:
            incarnate(index)
        threads.append(recorder.guarded("committed", lambda: recorder.follow("committed", is_committed=True)))
        threads.append(recorder.guarded("all", lambda: recorder.follow("all", is_committed=False)))
        threads.append(recorder.guarded("their-reader", lambda: recorder.follow_by_theirs("their-reader")))
        ends_s = time.monotonic() + lasts_s
        while time.monotonic() < ends_s:
            recorder.stop.wait(random.uniform(0.5, 1.5))  # between strikes the clients work
            if random.random() < 0.5:
                recorder.note("is killed")
                process.__exit__(None, None, None)
                process = broker(tmp_path, port)
                process.address()
                recorder.note("starts")
            else:
                recorder.note("is stopped")
                process.child.send_signal(signal.SIGSTOP)
                recorder.stop.wait(random.uniform(0.1, 1.5))
                process.child.send_signal(signal.SIGCONT)
                recorder.note("runs")
            incarnate(random.randrange(len(WRITERS)))
        recorder.stop.set()
        for thread in threads:
            thread.join(max(1.0, recorder.until_s - time.monotonic()))
        # librdkafka may wait in send_offsets_to_transaction for good if its broker dies then, whatever its
        # timeout (its issue 5456): such a producer counts as one that has died.
        assert [
            thread.name for thread in threads if thread.is_alive() and not thread.name.startswith("theirs")
        ] == []
        assert [repr(one) for one in recorder.failures] == []
        recorder.conclude([name for name, _, _ in WRITERS], ["g0", "g1"])
    finally:
        process.child.send_signal(signal.SIGCONT)
        process.__exit__(None, None, None)
    history = recorder.history
    (tmp_path / "history").write_text("\n".join(history.told()))
    anomalies = check(history)
    assert anomalies == [], f"{len(anomalies)} anomalies; the history: {tmp_path / 'history'}"
    committed = [txn for txn in history.transactions if txn.outcome is Outcome.COMMITTED]
    assert {txn.transactional_id for txn in committed} == {name for name, _, _ in WRITERS}
    assert any(txn.outcome is Outcome.ABORTED and txn.writes for txn in history.transactions)
