"""Transactional clients in threads, ours and confluent-kafka's, that write down a history for the checker
while their broker dies.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Protocol

import confluent_kafka as confluent

from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import TransactionAbortable
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.membership.offsets import OffsetAndMetadata
from sparklog.client.producer.producer import Producer
from sparklog.errors import RequestTimeout, SparklogError
from sparklog.model import TopicPartition
from sparklog_server.simulation.history import (
    Commit,
    History,
    Initialized,
    OffsetRead,
    Outcome,
    Poll,
    Transaction,
    Write,
)

CALL_S = 5.0
TIMEOUT_MS = 60_000


class Abortable(Exception):
    """The transaction has to be aborted, then the producer goes on."""


class Finished(Exception):
    """The producer is fenced, or the result of its last call is unknown: another takes its place."""


class Writer(Protocol):
    """A transactional producer; each call raises Abortable or Finished."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, partition: TopicPartition, value: int) -> None: ...

    def flush(self) -> dict[int, int]:
        """Offsets by value."""

    def send_offset(self, group: str, partition: TopicPartition, offset: int, number: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Ours:
    """`sparklog.Producer`."""

    def __init__(self, servers: str, transactional_id: str, until_s: float) -> None:
        self._producer = Producer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            retry_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )
        self._until_s = until_s
        self._sent: dict[int, Callable[[], int]] = {}

    def _call(self, call: Callable[[float], object]) -> None:
        while True:
            try:
                call(CALL_S)
                return
            except TransactionAbortable as error:
                raise Abortable from error
            except RequestTimeout as error:  # to call again is to wait on
                if time.monotonic() > self._until_s:
                    raise Finished from error
            except SparklogError as error:
                raise Finished from error

    def init(self) -> None:
        self._call(lambda wait_s: self._producer.init(int(1000 * wait_s)))

    def begin(self) -> None:
        self._sent.clear()
        self._call(lambda _: self._producer.begin())

    def send(self, partition: TopicPartition, value: int) -> None:
        def send(_: float) -> None:
            delivery = self._producer.send(partition.topic, b"%d" % value, partition=partition.partition)
            self._sent[value] = lambda: delivery.result(0).offset

        self._call(send)

    def flush(self) -> dict[int, int]:
        self._call(lambda wait_s: self._producer.flush(int(1000 * wait_s)))
        try:
            return {value: offset() for value, offset in self._sent.items()}
        except SparklogError as error:
            raise Abortable from error

    def send_offset(self, group: str, partition: TopicPartition, offset: int, number: int) -> None:
        positions = {partition: OffsetAndMetadata(offset, str(number))}
        try:
            self._producer.send_offsets(positions, GroupMetadata(group, -1, "", None), 4_000 * CALL_S)
        except (TransactionAbortable, RequestTimeout) as error:
            raise Abortable from error
        except SparklogError as error:
            raise Finished from error

    def commit(self) -> None:
        self._call(lambda wait_s: self._producer.commit(int(1000 * wait_s)))

    def abort(self) -> None:
        self._call(lambda wait_s: self._producer.abort(int(1000 * wait_s)))

    def close(self) -> None:
        self._producer.close(0)


class Theirs:
    """`confluent_kafka.Producer`."""

    def __init__(self, servers: str, transactional_id: str, until_s: float) -> None:
        self._servers = servers
        self._until_s = until_s
        self._offsets: dict[int, int] = {}
        self._failed = 0
        self._producer = confluent.Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def _call(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
                return
            except confluent.KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    raise Abortable from raised
                if not error.retriable() or time.monotonic() > self._until_s:
                    raise Finished from raised
            except (
                SystemError
            ) as raised:  # "returned NULL without setting an exception": it was fenced meanwhile
                raise Finished from raised

    def init(self) -> None:
        self._call(lambda: self._producer.init_transactions(CALL_S))

    def begin(self) -> None:
        self._offsets.clear()
        self._failed = 0
        self._call(self._producer.begin_transaction)

    def send(self, partition: TopicPartition, value: int) -> None:
        def delivered(error: confluent.KafkaError | None, message: confluent.Message) -> None:
            if error is None:
                self._offsets[value] = message.offset()
            else:
                self._failed += 1

        self._call(
            lambda: self._producer.produce(
                partition.topic, b"%d" % value, partition=partition.partition, on_delivery=delivered
            )
        )

    def flush(self) -> dict[int, int]:
        def flush() -> None:
            while self._producer.flush(CALL_S):
                if time.monotonic() > self._until_s:
                    raise Finished

        self._call(flush)
        if self._failed:
            raise Abortable
        return self._offsets

    def send_offset(self, group: str, partition: TopicPartition, offset: int, number: int) -> None:
        consumer = confluent.Consumer({"bootstrap.servers": self._servers, "group.id": group, "log_level": 0})
        try:
            position = confluent.TopicPartition(
                partition.topic, partition.partition, offset, metadata=str(number)
            )
            metadata = consumer.consumer_group_metadata()
            self._call(lambda: self._producer.send_offsets_to_transaction([position], metadata, CALL_S))
        finally:
            consumer.close()

    def commit(self) -> None:
        self._call(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        self._call(lambda: self._producer.abort_transaction(CALL_S))

    def close(self) -> None:
        with contextlib.suppress(confluent.KafkaException, SystemError):  # it reports the fatal error again
            self._producer.purge()


class Recorder:
    """One history that many threads write down. `stop` ends them."""

    def __init__(self, servers: str, partitions: tuple[TopicPartition, ...], *, lasts_s: float) -> None:
        self.history = History()
        self.servers = servers
        self.partitions = partitions
        self.stop = threading.Event()
        self.until_s = time.monotonic() + lasts_s + 10  # then there is no retry
        self.failures: list[BaseException] = []
        self._lock = threading.Lock()
        self._values = 0

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000

    def note(self, words: str) -> None:
        self.history.events.append((self.now_us(), words))

    def guarded(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """A thread whose failure is the test's."""

        def target() -> None:
            try:
                run()
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    # -- writing

    def incarnation(
        self,
        make: type[Ours] | type[Theirs],
        transactional_id: str,
        number: int,
        group: str | None,
        seed: int,
    ) -> None:
        """One producer, until it is fenced or the test is over."""
        random = Random(seed)
        writer: Writer = make(self.servers, transactional_id, self.until_s)
        asked_us = self.now_us()
        try:
            writer.init()
            self.history.initialized.append(Initialized(transactional_id, number, asked_us, self.now_us()))
            while not self.stop.is_set():
                self._transaction(writer, transactional_id, number, group, random)
        except (Finished, Abortable):
            if not any(
                (one.transactional_id, one.incarnation) == (transactional_id, number)
                for one in self.history.initialized
            ):
                self.history.initialized.append(
                    Initialized(transactional_id, number, asked_us, None, is_doubtful=True)
                )
        finally:
            writer.close()

    def _transaction(
        self, writer: Writer, transactional_id: str, incarnation: int, group: str | None, random: Random
    ) -> None:
        consumed = self._consume(group, random) if group is not None and random.random() < 0.5 else None
        with self._lock:
            txn = Transaction(
                len(self.history.transactions),
                transactional_id,
                incarnation,
                self.now_us(),
                TIMEOUT_MS * 1000,
            )
            self.history.transactions.append(txn)
        writer.begin()
        try:
            for _ in range(random.randint(1, 4)):
                self._write(writer, txn, random)
            if consumed is not None:
                txn.commits.append(consumed)
                writer.send_offset(consumed.group, consumed.partition, consumed.limit, txn.number)
                consumed.acked_us = self.now_us()
            offsets = writer.flush()
            for write in txn.writes:
                write.offset, write.acked_us = offsets[write.value], self.now_us()
            if random.random() < 0.25:
                raise Abortable
            txn.commit_us = txn.ended_us = self.now_us()
            txn.outcome = Outcome.UNKNOWN
            writer.commit()
            txn.told_us, txn.outcome = self.now_us(), Outcome.COMMITTED
        except Abortable:
            txn.ended_us = txn.ended_us or self.now_us()
            writer.abort()
            txn.told_us, txn.outcome = self.now_us(), Outcome.ABORTED

    def _write(self, writer: Writer, txn: Transaction, random: Random) -> None:
        partition = random.choice(self.partitions)
        for _ in range(random.randint(1, 3)):
            with self._lock:
                self._values += 1
                write = Write(partition, self._values)
            txn.writes.append(write)
            writer.send(partition, write.value)

    # -- reading

    def _consume(self, group: str, random: Random) -> Commit | None:
        partition = random.choice(self.partitions)
        read = self.offset(group, partition)
        if read is None:
            return None
        self.history.offset_reads.append(read)
        start = 0 if read.found is None else read.found[0]
        with self._consumer(is_committed=True) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, start)
            poll = self._poll(consumer, f"{group}@{read.asked_us}", [partition], is_committed=True)
        self.history.polls.extend(poll)
        return Commit(group, partition, start, poll[0].limit) if poll[0].limit > start else None

    def follow(self, name: str, *, is_committed: bool) -> None:
        """One of our consumers, until the test is over."""
        with self._consumer(is_committed=is_committed) as consumer:
            consumer.assign(self.partitions)
            consumer.seek_to_beginning()
            while not self.stop.is_set():
                self.history.polls.extend(
                    self._poll(consumer, name, list(self.partitions), is_committed=is_committed)
                )

    def _consumer(self, *, is_committed: bool) -> Consumer:
        return Consumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed" if is_committed else "read_uncommitted",
            auto_offset_reset="earliest",
            reconnect_backoff_max_ms=100,
        )

    def _poll(
        self, consumer: Consumer, name: str, partitions: list[TopicPartition], *, is_committed: bool
    ) -> list[Poll]:
        asked_us = self.now_us()
        starts = {partition: consumer.position(partition) for partition in partitions}
        records = consumer.poll(200)
        told_us = self.now_us()
        found = {
            partition: tuple(
                (one.offset, int(one.value or b"-1")) for one in records if one.topic_partition == partition
            )
            for partition in partitions
        }
        return [
            Poll(
                name,
                partition,
                is_committed,
                starts[partition],
                consumer.position(partition),
                found[partition],
                asked_us,
                told_us,
            )
            for partition in partitions
        ]

    def follow_by_theirs(self, name: str) -> None:
        """One of confluent's consumers, until the test is over."""
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        stands = dict.fromkeys(self.partitions, 0)
        consumer.assign([confluent.TopicPartition(*partition, 0) for partition in self.partitions])
        try:
            while not self.stop.is_set():
                asked_us = self.now_us()
                messages = [one for one in consumer.consume(100, 0.2) if one.error() is None]
                for partition in self.partitions:
                    mine = [one for one in messages if (one.topic(), one.partition()) == partition]
                    records = tuple((one.offset() or 0, int(one.value() or b"-1")) for one in mine)
                    if records:
                        limit = records[-1][0] + 1
                        # What it has fetched ahead was asked for before this call.
                        self.history.polls.append(
                            Poll(
                                name,
                                partition,
                                True,
                                stands[partition],
                                limit,
                                records,
                                asked_us,
                                self.now_us(),
                            )
                        )
                        stands[partition] = limit
        finally:
            consumer.close()

    def offset(self, group: str, partition: TopicPartition) -> OffsetRead | None:
        """A group's committed offsets; None without a reply."""
        asked_us = self.now_us()
        try:
            with Admin(bootstrap_servers=self.servers, default_api_timeout_ms=10_000) as admin:
                found = admin.list_group_offsets({group: [partition]}, require_stable=True)[group].get(
                    partition
                )
        except SparklogError:
            return None
        told = (
            None if found is None else (found.offset, int(found.metadata.rstrip("\0") or -1))
        )  # librdkafka sends the end of a C string
        return OffsetRead(group, partition, True, False, told, asked_us, self.now_us())

    # -- the end

    def conclude(self, transactional_ids: list[str], groups: list[str]) -> None:
        """End open transactions, then read everything."""
        for transactional_id in transactional_ids:
            writer = Ours(self.servers, transactional_id, self.until_s)
            writer.init()
            writer.close()
        for partition in self.partitions:
            for is_committed, into in ((False, self.history.final_all), (True, self.history.final_committed)):
                into.append(self._whole(partition, is_committed=is_committed))
            for group in groups:
                read = self.offset(group, partition)
                assert read is not None
                self.history.final_offsets.append(read)

    def _whole(self, partition: TopicPartition, *, is_committed: bool) -> Poll:
        with self._consumer(is_committed=False) as plain:
            end = plain.end_offsets([partition])[partition]
        records: tuple[tuple[int, int], ...] = ()
        limit, asked_us = 0, self.now_us()
        with self._consumer(is_committed=is_committed) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            while limit < end and self.now_us() - asked_us < 20_000_000:
                (poll,) = self._poll(consumer, "the end", [partition], is_committed=is_committed)
                records, limit = records + poll.records, poll.limit
        return Poll("the end", partition, is_committed, 0, limit, records, asked_us, self.now_us())
