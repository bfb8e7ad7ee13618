"""Transactional producers that do the same thing: one transaction after another, each of so many records
in one partition.

`prepared` has every frame ready before its time is taken and speaks as a client of transaction version 2
does (KIP-890): it shows the broker. Ours speaks version 2 too, librdkafka version 1, Kafka's own Java
producer for every broker.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import confluent_kafka

from benchmarks import harness, raw
from benchmarks.group_members import ask, framed
from sparklog.client.producer.producer import Producer
from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.record.batch import build_batch
from sparklog.wire.header import decode_reply
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.schema import Message

R = TypeVar("R", bound=Message)

_DRIVER = harness.PROJECT / "benchmarks" / "TransactionDriver.java"
_PRODUCE, _END, _FIND, _INIT = 12, 5, 4, 5
_READY_WITHIN_S = 60.0
_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Run:
    """The result of a client: the duration of each commit, in microseconds, and how many seconds all took."""

    commits_us: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Transactions."""
        return len(self.commits_us) / self.seconds


@dataclass(frozen=True, slots=True)
class Load:
    """How much: the time ends with whichever of `count` and `seconds_max` comes first; warm-up
    transactions are not counted.
    """

    count: int
    seconds_max: float
    warm_up: int
    records: int = 1
    size: int = 100


Client = Callable[[harness.Subject, str, Load], Run]


def ours(subject: harness.Subject, topic: str, load: Load) -> Run:
    """Our own Producer."""
    value = b"x" * load.size
    with Producer(
        bootstrap_servers=subject.bootstrap_servers,
        transactional_id=_id("ours"),
        linger_ms=0 if load.records == 1 else 5,
    ) as it:
        it.init()

        def write() -> None:
            it.begin()
            for _ in range(load.records):
                it.send(topic, value, partition=0)

        return _timed(load, write, it.commit)


def librdkafka(subject: harness.Subject, topic: str, load: Load) -> Run:
    """librdkafka by confluent-kafka."""
    value = b"x" * load.size
    it = confluent_kafka.Producer(
        {
            "bootstrap.servers": subject.bootstrap_servers,
            "transactional.id": _id("librdkafka"),
            "linger.ms": 0 if load.records == 1 else 5,
        }
    )
    it.init_transactions(_READY_WITHIN_S)

    def write() -> None:
        it.begin_transaction()
        for _ in range(load.records):
            it.produce(topic, value, partition=0)

    return _timed(load, write, it.commit_transaction)


def java(subject: harness.Subject, topic: str, load: Load) -> Run:
    """Kafka's own producer, in a process of its own."""
    numbers = (load.warm_up, load.count, load.records, load.size, load.seconds_max)
    jars = f"{harness.KAFKA_JARS}/*"
    quiet = f"-Dlog4j2.configurationFile={harness.PROJECT / 'conf' / 'kafka-tools-log4j2.properties'}"
    command = [
        "java",
        "-Xmx256m",
        quiet,
        "-cp",
        jars,
        str(_DRIVER),
        subject.bootstrap_servers,
        topic,
        _id("java"),
        *map(str, numbers),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"TransactionDriver: {done.stdout[-500:]}{done.stderr[-1500:]}")
    *commits, last = done.stdout.split("\n")[:-1]
    return Run([float(line) for line in commits], float(last.removeprefix("seconds ")))


def has_java() -> bool:
    """Whether Kafka's own producer can be compiled and run here."""
    return shutil.which("javac") is not None and harness.kafka_is_available()


def prepared(subject: harness.Subject, topic: str, load: Load) -> Run:
    """A socket, and frames that are there before they are needed; a record each."""
    with raw.connect(subject) as connection:
        transactional_id = _id("raw")
        producer_id, epoch = begin(connection, transactional_id)
        now_ms = int(time.time() * 1000)
        produce = b""
        end = b""

        def prepare() -> None:
            nonlocal produce, end
            batch = build_batch([(None, b"x" * load.size, (), now_ms)] * load.records)
            scan.stamp_producer(batch, producer_id, epoch, 0, True)
            data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])]
            produce = framed(
                ProduceRequest(transactional_id, -1, timeout_ms=_TIMEOUT_MS, topic_data=data), _PRODUCE
            )
            end = framed(EndTxnRequest(transactional_id, producer_id, epoch, committed=True), _END)

        def write() -> None:
            while True:
                answer = _exchange(connection, produce, _PRODUCE, ProduceResponse)
                code = answer.responses[0].partition_responses[0].error_code
                if code == 0:
                    return
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise RuntimeError(f"produce answered with error {code}")

        def commit() -> None:
            nonlocal producer_id, epoch
            answer = _exchange(connection, end, _END, EndTxnResponse)
            if answer.error_code:
                raise RuntimeError(f"EndTxn answered with error {answer.error_code}")
            producer_id, epoch = answer.producer_id, answer.producer_epoch

        return _timed(load, write, commit, prepare)


def begin(connection: socket.socket, transactional_id: str) -> tuple[int, int]:
    """A producer id and its epoch, as soon as the coordinator serves."""
    deadline = time.monotonic() + _READY_WITHIN_S
    while True:
        found = ask(
            connection,
            FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]),
            _FIND,
            FindCoordinatorResponse,
        )
        assert isinstance(found, FindCoordinatorResponse)
        code = found.coordinators[0].error_code
        if code == 0:
            answer = ask(
                connection,
                InitProducerIdRequest(transactional_id, _TIMEOUT_MS),
                _INIT,
                InitProducerIdResponse,
            )
            assert isinstance(answer, InitProducerIdResponse)
            code = answer.error_code
            if code == 0:
                return answer.producer_id, answer.producer_epoch
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"no producer id for {transactional_id} after {_READY_WITHIN_S:.0f} s: error {code}"
            )
        time.sleep(0.02)


def _timed(
    load: Load,
    write: Callable[[], None],
    commit: Callable[[], object],
    prepare: Callable[[], None] | None = None,
) -> Run:
    run = Run()
    for number in range(load.warm_up + load.count):
        if prepare is not None:
            prepare()
        began = time.perf_counter()
        write()
        committing = time.perf_counter()
        commit()
        ended = time.perf_counter()
        if number >= load.warm_up:
            run.commits_us.append((ended - committing) * 1e6)
            run.seconds += ended - began
            if run.seconds > load.seconds_max:
                break
    return run


def _exchange(connection: socket.socket, frame: bytes, version: int, reply: type[R]) -> R:
    connection.sendall(frame)
    return decode_reply(reply, version, raw.reply(connection)[4:])[1]


def _id(name: str) -> str:
    return f"bench-{name}-{time.monotonic_ns()}"
