"""Reads among transactions: committed, aborted and open ones, and ranges that begin and end at the
markers of those.
"""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Producer

from sparklog import Admin
from sparklog.client.admin.topics import NewTopic
from tests.spark.differential.conftest import Bench, Sent
from tests.spark.differential.programs import new_name, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.compat, pytest.mark.long, pytest.mark.timeout(300)]

# Offsets `[start, end)` of the first partition and of the second one.
RANGES = {
    "all there is": ((-2, -1), (-2, -1)),
    "from a marker on": ((4, -1), (1, -1)),
    "up to a marker": ((0, 4), (0, 1)),
    "up to after a marker": ((0, 5), (0, 2)),
    "a marker and nothing else": ((4, 5), (1, 2)),
    "aborted records and nothing else": ((5, 7), (0, 1)),
    "up to the last stable offset": ((0, 10), (0, 2)),
}


@pytest.fixture(scope="module")
def transactions(servers: str, fill: Callable[[str, Sequence[Sent]], None]) -> Iterator[str]:
    """A topic whose second partition holds an aborted record and its marker, and whose first one is

    0 a, 1 b | committed: 2 c, 3 d, marker 4 | aborted: 5 e, 6 f, marker 7 |
    committed: 8 g, marker 9 | open: 10 h
    """
    topic = new_name("transactions")
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 2, configs={"retention.ms": "-1"})])
    fill(topic, [Sent(b"a"), Sent(b"b")])
    settings = {"transactional.id": f"writer-of-{topic}", "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(30)

    def begin(*values: tuple[int, str]) -> None:
        producer.begin_transaction()
        for partition, value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    begin((0, "c"), (0, "d"))
    producer.commit_transaction(30)
    begin((0, "e"), (0, "f"), (1, "z"))
    producer.abort_transaction(30)
    begin((0, "g"))
    producer.commit_transaction(30)
    begin((0, "h"))
    yield topic
    producer.abort_transaction(30)


@pytest.mark.parametrize("case", RANGES)
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_batch_read_among_transactions_answers_alike(
    bench: Bench, transactions: str, level: str, case: str
) -> None:
    starts, ends = (
        {transactions: {str(p): bounds[i] for p, bounds in enumerate(RANGES[case])}} for i in (0, 1)
    )
    options = {
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "kafka.isolation.level": level,
    }
    bench.alike(lambda side: rows_of(side.read(subscribe=transactions, **options)))


@pytest.mark.parametrize("limit", ["1", "3", "100"])
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_stream_among_transactions_cuts_the_same_batches_wherever_one_ends(
    bench: Bench, transactions: str, level: str, limit: str
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": limit, "kafka.isolation.level": level}
    result = bench.alike(lambda side: side.batches(side.stream(subscribe=transactions, **options)))
    assert isinstance(result, list)
    offsets = [offset for batch in result for _, partition, offset in batch if partition == 0]
    assert offsets == [0, 1, 2, 3, 8] if level == "read_committed" else [0, 1, 2, 3, 5, 6, 8, 10]
