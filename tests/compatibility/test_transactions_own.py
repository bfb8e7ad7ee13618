"""Our own transactional clients: their writes, reads, fences and ends, against our broker or a real Kafka,
beside confluent's clients.
"""

import time
from collections.abc import Callable, Iterator

import confluent_kafka as confluent
import pytest

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.failures import ProducerFenced, TransactionAbortable, WrongTransactionState
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings, IsolationLevel
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch, decode_records, iterate_headers
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker

pytestmark = pytest.mark.compat

PATIENCE_MS = int(PATIENCE_S * 1000)


@pytest.fixture
def admin(live: LiveBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=live.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def tid(live: LiveBroker) -> str:
    """A transactional id, and prefix of some, that no other test uses."""
    return live.create("tid")


def client(live: LiveBroker, **given: str) -> ClientSettings:
    return ClientSettings.from_kafka(
        {"bootstrap.servers": live.bootstrap_servers, **{k.replace("_", "."): v for k, v in given.items()}}
    )


def producer(live: LiveBroker, tid: str) -> Producer:
    made = Producer(bootstrap_servers=live.bootstrap_servers, transactional_id=tid, linger_ms=0)
    made.init()
    return made


def read(
    live: LiveBroker,
    topic: str,
    *,
    isolation: IsolationLevel = "read_committed",
    partitions: int = 1,
    is_stable: bool = False,
) -> list[str]:
    """Values of all partitions in the order of partition and offset: up to the end of the log, or only
    what is stable at this moment.

    A coordinator answers before its markers are written, so that reading to the end of the log is also to
    wait for them.
    """
    parts = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[tuple[int, int, str]] = []
    with (
        Consumer(
            bootstrap_servers=live.bootstrap_servers, isolation_level=isolation, auto_offset_reset="earliest"
        ) as consumer,
        Consumer(bootstrap_servers=live.bootstrap_servers) as other,
    ):
        ends = (consumer if is_stable else other).end_offsets(parts)
        consumer.assign(parts)
        deadline = time.monotonic() + PATIENCE_S
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < deadline, {
                str(part): (consumer.position(part), ends[part]) for part in parts
            }
            found += [(one.partition, one.offset, (one.value or b"").decode()) for one in consumer.poll(200)]
    return [value for _, _, value in sorted(found)]


def batch(*values: str) -> bytearray:
    return build_batch([(None, value.encode(), (), int(time.time() * 1000)) for value in values])


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BrokerError) as failed:
        call()
    return failed.value.code


def test_what_was_committed_is_read_and_what_was_aborted_is_not(live: LiveBroker, tid: str) -> None:
    topic = live.create("several", partitions=2)
    with producer(live, tid) as writer:
        for number in range(6):
            writer.begin()
            writer.send(topic, f"a{number}", partition=0)
            writer.send(topic, f"b{number}", partition=1)
            writer.flush()
            writer.abort() if number % 3 == 0 else writer.commit()
    assert read(live, topic, partitions=2) == ["a1", "a2", "a4", "a5", "b1", "b2", "b4", "b5"]
    assert len(read(live, topic, partitions=2, isolation="read_uncommitted")) == 12


def test_whole_batches_and_ranges_leave_out_what_was_aborted(live: LiveBroker, tid: str) -> None:
    topic = live.create("ranges")
    with BatchWriter(client(live, transactional_id=tid)) as writer:
        writer.init()
        for number in range(4):
            writer.begin()
            writer.add(topic, 0, batch(f"{number}x", f"{number}y"), 2)
            writer.flush()
            writer.commit() if number % 2 else writer.abort()
    # Records at 0 1 (aborted), marker 2, records 3 4, marker 5, records 6 7 (aborted), marker 8, records 9
    # 10, marker 11.
    with RangeReader(client(live), isolation_level="read_committed") as ranges:

        def values(start: int, limit: int) -> list[str]:
            return [
                (record.value or b"").decode()
                for view in ranges.read(topic, 0, start, limit)
                for at, header in iterate_headers(view)
                if not header.is_control
                for record in decode_records(view[at : at + header.size])
                if start <= record.offset < limit
            ]

        told = {
            (start, limit): values(start, limit)
            for start, limit in ((0, 2), (0, 3), (2, 3), (1, 5), (4, 6), (5, 9), (8, 12), (0, 12))
        }
    assert told == {
        **{(0, 2): [], (0, 3): [], (2, 3): [], (1, 5): ["1x", "1y"], (4, 6): ["1y"], (5, 9): []},
        **{(8, 12): ["3x", "3y"], (0, 12): ["1x", "1y", "3x", "3y"]},
    }
    with Consumer(
        bootstrap_servers=live.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert read(live, topic) == ["1x", "1y", "3x", "3y"]
        views = consumer.poll_batches(PATIENCE_MS)
        assert [view.next_offset for view in views][-1] == consumer.position(TopicPartition(topic, 0)) == 12
        data = [h.base_offset for view in views for _, h in iterate_headers(view.records) if not h.is_control]
    assert data == [3, 9]


def test_an_open_transaction_holds_readers_back_and_committing_lets_them_go_on(
    live: LiveBroker, tid: str
) -> None:
    topic = live.create("open")
    with Producer(bootstrap_servers=live.bootstrap_servers) as plain:
        plain.send(topic, "before").result(PATIENCE_S)
        with producer(live, tid) as writer:
            writer.begin()
            writer.send(topic, "inside").result(PATIENCE_S)
            plain.send(topic, "after").result(PATIENCE_S)
            assert read(live, topic, is_stable=True) == ["before"]
            assert read(live, topic, isolation="read_uncommitted") == ["before", "inside", "after"]
            writer.commit()
    assert read(live, topic) == ["before", "inside", "after"]


def test_offsets_and_records_of_a_transaction_come_together(live: LiveBroker, tid: str, admin: Admin) -> None:
    source, copy = live.create("source"), live.create("copy")
    with Producer(bootstrap_servers=live.bootstrap_servers) as plain:
        for number in range(20):
            plain.send(source, str(number))
    at = TopicPartition(source, 0)
    with (
        Consumer(
            bootstrap_servers=live.bootstrap_servers,
            group_id=tid,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        producer(live, tid) as writer,
    ):
        consumer.subscribe([source])
        turns, copied = 0, 0
        while copied < 20:
            records = consumer.poll(PATIENCE_MS, max_records=5)
            assert records
            turns += 1
            writer.begin()
            for record in records:
                writer.send(copy, record.value)
            writer.send_offsets({at: records[-1].offset + 1}, consumer.group_metadata())
            if turns == 2:
                writer.abort()
                consumer.seek(at, copied)
                continue
            writer.commit()
            copied = records[-1].offset + 1
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 20, "a read-committed consumer waits for the marker"
        writer.begin()
        stale = GroupMetadata(tid, 0, "nobody", None)
        with pytest.raises(TransactionAbortable):
            writer.send_offsets({at: 1}, stale)
        writer.abort()
    assert read(live, copy) == [str(number) for number in range(20)]
    assert admin.list_group_offsets([tid], require_stable=True)[tid][at].offset == 20


def test_a_younger_producer_fences_the_older_and_aborts_what_that_one_has_open(
    live: LiveBroker, tid: str
) -> None:
    topic = live.create("fenced")
    with producer(live, tid) as older:
        older.begin()
        older.send(topic, "older").result(PATIENCE_S)
        with producer(live, tid) as younger:
            younger.begin()
            younger.send(topic, "younger")
            younger.commit()
        with pytest.raises(ProducerFenced):
            older.commit()
        with pytest.raises(ProducerFenced):
            older.begin()
    assert read(live, topic) == ["younger"]


def test_a_late_batch_of_a_fenced_producer_does_not_get_into_the_log(live: LiveBroker, tid: str) -> None:
    topic = live.create("late")
    with producer(live, tid) as older:
        older.begin()
        older.send(topic, "a").result(PATIENCE_S)
        with producer(live, tid):
            with pytest.raises(SparklogError):
                older.send(topic, "b").result(PATIENCE_S)
            with pytest.raises((TransactionAbortable, ProducerFenced)):
                older.commit()
    assert read(live, topic) == []
    assert read(live, topic, isolation="read_uncommitted") == ["a"]


def test_a_transaction_is_ended_by_whoever_knows_its_identity(
    live: LiveBroker, tid: str, admin: Admin
) -> None:
    topic = live.create("identity")
    identities: list[ProducerIdentity] = []
    for name in ("committed", "aborted", "left"):
        with BatchWriter(client(live, transactional_id=f"{tid}.{name}")) as writer:
            writer.init()
            writer.begin()
            writer.add(topic, 0, batch(name), 1)
            writer.flush()
            identities.append(writer.identity)
    listed = admin.list_transactions(prefix=f"{tid}.")
    assert [(one.transactional_id, one.state) for one in listed] == [
        (f"{tid}.aborted", "Ongoing"),
        (f"{tid}.committed", "Ongoing"),
        (f"{tid}.left", "Ongoing"),
    ]
    committed, aborted, left = identities
    described = admin.describe_transactions([left.transactional_id])[left.transactional_id]
    assert (described.state, described.producer_id, described.producer_epoch) == (
        "Ongoing",
        left.producer_id,
        left.producer_epoch,
    )
    assert described.partitions == (TopicPartition(topic, 0),)
    ended = admin.end_transaction(committed, is_commit=True)
    assert admin.end_transaction(committed, is_commit=True) == ended, "the same once more changes nothing"
    assert refused(lambda: admin.end_transaction(committed, is_commit=False)) is ErrorCode.INVALID_TXN_STATE
    admin.end_transaction(aborted, is_commit=False)
    assert (
        admin.fence_producers([left.transactional_id])[left.transactional_id].producer_epoch
        > left.producer_epoch
    )
    assert refused(lambda: admin.end_transaction(left, is_commit=True)) is ErrorCode.PRODUCER_FENCED
    assert read(live, topic) == ["committed"]
    assert [
        one.transactional_id for one in admin.list_transactions(prefix=f"{tid}.", states=["Ongoing"])
    ] == []
    assert [one.transactional_id for one in admin.list_transactions(pattern=f"{tid}.(left|nobody)")] == [
        left.transactional_id
    ]


def test_an_id_that_nobody_uses_is_told(tid: str, admin: Admin) -> None:
    with pytest.raises(ItemsFailed) as failed:
        admin.describe_transactions([tid])
    assert failed.value.errors[tid].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert refused(lambda: admin.list_transactions(states=["Perhaps"])) is ErrorCode.INVALID_REQUEST


def test_no_transaction_hangs_where_coordinators_know_them_all(
    live: LiveBroker, tid: str, admin: Admin
) -> None:
    topic = live.create("known")
    with producer(live, tid) as writer:
        writer.begin()
        writer.send(topic, "v").result(PATIENCE_S)
        assert admin.find_hanging_transactions(topics=[topic], longer_than_ms=-60_000) == []
        (held,) = admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert held.transaction_start_offset == 0
        writer.abort()


def test_closing_a_producer_aborts_what_it_has_open(live: LiveBroker, tid: str, admin: Admin) -> None:
    topic = live.create("closed")
    with producer(live, tid) as writer:
        writer.begin()
        writer.send(topic, "v").result(PATIENCE_S)
    assert read(live, topic) == []
    assert admin.describe_transactions([tid])[tid].state == "CompleteAbort"


def test_calls_out_of_order_change_nothing(live: LiveBroker, tid: str) -> None:
    topic = live.create("order")
    with producer(live, tid) as writer:
        for call in (writer.commit, writer.abort, lambda: writer.send(topic, "v"), writer.init):
            with pytest.raises(WrongTransactionState):
                call()
        writer.begin()
        writer.send(topic, "v")
        writer.commit()
    assert read(live, topic) == ["v"]


def test_confluents_clients_and_ours_read_each_others_transactions(live: LiveBroker, tid: str) -> None:
    topic = live.create("both")
    theirs = confluent.Producer(
        {"bootstrap.servers": live.bootstrap_servers, "transactional.id": f"{tid}-theirs"}
    )
    theirs.init_transactions(PATIENCE_S)
    with producer(live, tid) as ours:
        for number in range(4):
            theirs.begin_transaction()
            theirs.produce(topic, f"theirs{number}")
            theirs.abort_transaction(PATIENCE_S) if number % 2 else theirs.commit_transaction(PATIENCE_S)
            ours.begin()
            ours.send(topic, f"ours{number}")
            ours.flush()
            ours.commit() if number % 2 else ours.abort()
    assert read(live, topic) == ["theirs0", "ours1", "theirs2", "ours3"]
    reader = confluent.Consumer(
        {
            "bootstrap.servers": live.bootstrap_servers,
            "group.id": tid,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.assign([confluent.TopicPartition(topic, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 4 and time.monotonic() < deadline:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    reader.close()
    assert found == [b"theirs0", b"ours1", b"theirs2", b"ours3"]
