"""The topic `__sparklog_commits` for a sink: created on first use, read to its end, written in the
coordinator's transaction.

    fence(sink) ─► every older one is shut out    last(sink) ─► the last decision, and whether it is finished
    decide(decision) ─► the commit point          finish(decision) ─► its transactions are all committed
    condemn(sink, transactions) ─► no decision may name them    condemned(sink) ─► as of the last `last`

The coordinator's transactions order decisions and condemned transactions: a fenced committer writes neither.

State of earlier reads is cached, so the next read begins where this one ended. Connections stay open until
`close`. Not safe for use from several threads.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from msgspec.structs import replace

from sparklog.client.admin.admin import EARLIEST, LATEST, Admin, ItemsFailed, NewTopic
from sparklog.client.clock import instant, now_us
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.exactly_once.decisions import (
    PARTITION_COUNT,
    RECORD_BYTES_MAX,
    TOPIC,
    About,
    Decision,
    coordinator_id,
    decode_condemned,
    decode_decision,
    encode_condemned,
    encode_decision,
    key_of,
    parse_key,
    partition_of,
)
from sparklog.client.failures import DeliveryFailed, OffsetOutOfRange, UnknownTopic
from sparklog.client.producer.transaction_errors import of_batch
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode, SettingsError, SparklogError
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import build_batch, decode_records

REPLICAS: Final = 3
COORDINATOR_TIMEOUT_MS_MAX: Final = 30_000
"""The transaction timeout of the coordinator, for which the decisions of other sinks may wait if a driver
dies while it decides. It is a quarter of the tasks' timeout if that is less.
"""
KEPT_MAX: Final = 8
"""The number of sinks whose connection and last decision are kept: those used last."""
FENCE_KEPT_US: Final = 60_000_000
"""The time for which a coordinator's producer is reused without InitProducerId: while it is not fenced, no
other committer has decided anything.
"""


class LastDecision(NamedTuple):
    """The last decision of a sink; finished once all its transactions are known to be committed."""

    decision: Decision
    is_finished: bool


class _Seen:
    """The state of one sink, read up to `offset`."""

    __slots__ = ("offset", "reported", "values")

    def __init__(self) -> None:
        self.offset = -1
        self.reported = ""
        self.values: dict[About, bytes | None] = {}


class _Coordinator(NamedTuple):
    writer: BatchWriter
    used_us: Micros


class DecisionLog:
    """The decisions of the sinks of one cluster. Invariant: after any error, the writer of a sink's decisions
    is not used again.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = replace(settings, acks="all", enable_idempotence=True, transactional_id=None)
        self.coordinator_timeout_ms = min(
            COORDINATOR_TIMEOUT_MS_MAX, max(1, settings.transaction_timeout_ms // 4)
        )
        self.admin = Admin.from_settings(self.settings)
        self._reader: RangeReader | None = None
        self._plain: BatchWriter | None = None
        self._partition_count = 0
        self._seen: dict[str, _Seen] = {}
        self._coordinators: dict[str, _Coordinator] = {}

    # -- fencing ---------------------------------------------------------------------------------------------

    def fence(self, sink: str, *, is_anew: bool) -> bool:
        """Become the committer of the sink: the decisions of all earlier committers are refused from now on.

        If this object was the last to fence the sink as far as it knows, nothing is sent, unless `is_anew`;
        its next decision verifies that. Returns whether a request was sent.
        """
        kept = self._coordinators.get(sink)
        if kept is not None and not is_anew and now_us() - kept.used_us < FENCE_KEPT_US:
            return False
        self.resign(sink)
        writer = BatchWriter(
            replace(
                self.settings,
                transactional_id=coordinator_id(sink),
                transaction_timeout_ms=self.coordinator_timeout_ms,
            )
        )
        try:
            writer.init()
        except BaseException:
            writer.close()
            raise
        self._coordinators[sink] = _Coordinator(writer, now_us())
        for old in list(self._coordinators)[:-KEPT_MAX]:
            self.resign(old)
        return True

    def resign(self, sink: str) -> None:
        """Forget that this object is the committer of the sink."""
        kept = self._coordinators.pop(sink, None)
        if kept is not None:
            kept.writer.close()

    # -- decisions -------------------------------------------------------------------------------------------

    def last(self, sink: str) -> LastDecision | None:
        """The last decision of a sink, read with read_committed up to the current end of the log; None if
        there is none.

        Waits for open transactions below that end, also those of other sinks. Raises RequestTimeout and
        DecisionUnreadable.
        """
        try:
            partition = self._partition(sink)
        except UnknownTopic:
            return None
        # Kept in the order of use: a worker may write to several sinks in turn, and each decision may have
        # megabytes.
        seen = self._seen[sink] = self._seen.pop(sink, _Seen())
        for old in list(self._seen)[:-KEPT_MAX]:
            del self._seen[old]
        end = self.admin.list_offsets({partition: LATEST})[partition].offset
        if seen.offset < 0 or end < seen.offset:
            seen = self._from_the_beginning(sink, partition)
        try:
            self._read(sink, partition, seen, end)
        except OffsetOutOfRange:
            self._read(sink, partition, self._from_the_beginning(sink, partition), end)
        return self._last_seen(sink)

    def known(self, sink: str) -> LastDecision | None:
        """As `last`, but without a request if the sink was read before: correct only if no other committer
        has fenced this one since. Otherwise the next decision of this object is refused.
        """
        return self._last_seen(sink) if sink in self._seen else self.last(sink)

    def is_news(self, sink: str, unique: str) -> bool:
        """Whether the decision with this `unique` is reported for the first time, as far as this object
        knows.
        """
        seen = self._seen.setdefault(sink, _Seen())
        is_news, seen.reported = seen.reported != unique, unique
        return is_news

    def _last_seen(self, sink: str) -> LastDecision | None:
        values = self._seen[sink].values
        decided = values.get(About.DECISION)
        if decided is None:
            return None
        decision = decode_decision(sink, decided)
        return LastDecision(decision, values.get(About.FINISHED) == decision.unique.encode())

    def condemned(self, sink: str) -> frozenset[str]:
        """The condemned transactional ids that `last` has found."""
        seen = self._seen.get(sink)
        value = None if seen is None else seen.values.get(About.CONDEMNED)
        return (
            frozenset()
            if value is None
            else frozenset(one.transactional_id for one in decode_condemned(sink, value))
        )

    def decide(self, decision: Decision, check: Callable[[], None]) -> None:
        """Write the decision in the coordinator's transaction, `check` the transactions that it names, and
        commit.

        A broker that looks for decisions after `check` therefore waits for this one, and a driver that pauses
        here for longer than `coordinator_timeout_ms` decides nothing. After an error of `check` nothing is
        decided; after another error the decision may be written or not.
        """
        self._write(decision.sink, About.DECISION, encode_decision(decision), check)

    def condemn(self, sink: str, transactions: Sequence[ProducerIdentity]) -> None:
        """Exclude these transactions from all later decisions; replaces the former set. Raises
        TransactionError if another committer has fenced this one since its `fence`; that committer decides
        then.
        """
        self._write(sink, About.CONDEMNED, encode_condemned(sink, transactions) if transactions else None)

    def _write(
        self, sink: str, about: About, value: bytes | None, check: Callable[[], None] | None = None
    ) -> None:
        self.make_topic()
        partition = self._partition(sink)
        record = build_batch([(key_of(sink, about), value, (), instant().wall_ms)])
        writer = self._coordinators[sink].writer
        try:
            writer.begin()
            writer.add(partition.topic, partition.partition, record, 1)
            if check is not None:
                try:
                    writer.flush()
                except (BrokerError, DeliveryFailed) as error:
                    raise of_batch(error, coordinator_id(sink)) from None
                check()  # if it raises, the next committer to fence ends the open transaction
            writer.commit()
        except BaseException:
            self.resign(sink)
            raise
        self._coordinators[sink] = _Coordinator(writer, now_us())
        if sink in self._seen:
            self._seen[sink].values[about] = value

    def finish(self, decision: Decision) -> None:
        """Record that all transactions of a decision are committed, so that no later committer describes them
        again; see `settle`.
        """
        sink, now_ms = decision.sink, instant().wall_ms
        partition = self._partition(sink)
        if decision.is_job:
            record = build_batch([(key_of(sink, About.DECISION), None, (), now_ms)])
        else:
            record = build_batch([(key_of(sink, About.FINISHED), decision.unique.encode(), (), now_ms)])
        if self._plain is None:
            # No fsync is awaited: if this record is lost, the transactions are ended once more, which changes
            # nothing.
            self._plain = BatchWriter(replace(self.settings, acks="1", enable_idempotence=False))
        try:
            self._plain.add(partition.topic, partition.partition, record, 1)
        except SparklogError:
            self._plain.close()
            self._plain = None
            raise
        if decision.is_job:
            self._seen.pop(sink, None)
        elif sink in self._seen:
            self._seen[sink].values[About.FINISHED] = decision.unique.encode()

    def settle(self) -> None:
        """Wait until every record of `finish` is in the log."""
        if self._plain is None:
            return
        try:
            self._plain.flush()
        except SparklogError:
            self._plain.close()
            self._plain = None
            raise

    # -- the topic -------------------------------------------------------------------------------------------

    def make_topic(self) -> None:
        """Create the topic if it does not exist; raises SettingsError if an existing one would lose
        decisions.
        """
        if self._partition_count:
            return
        self._create_topic(min(REPLICAS, len(self.admin.describe_cluster().nodes)))
        policy = self.admin.describe_configs([TOPIC])[TOPIC]["cleanup.policy"].value
        if policy != "compact":
            raise SettingsError(
                f"topic {TOPIC} has cleanup.policy={policy} and would forget which batches are committed: "
                f"set it to compact, as in"
                f" sparklog configs alter --topic {TOPIC} cleanup.policy=compact"
            )
        self._partition_count = len(self.admin.describe_topics([TOPIC])[TOPIC].partitions)

    def _create_topic(self, replicas: int) -> None:
        configs = {
            "cleanup.policy": "compact",
            "max.message.bytes": str(RECORD_BYTES_MAX),
            "min.insync.replicas": "2" if replicas > 2 else "1",
            "unclean.leader.election.enable": "false",
        }
        try:
            self.admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT, replicas, configs)])
        except ItemsFailed as failed:
            if failed.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _partition(self, sink: str) -> TopicPartition:
        if not self._partition_count:
            count = len(self.admin.describe_topics([TOPIC])[TOPIC].partitions)
            return TopicPartition(TOPIC, partition_of(sink, count))
        return TopicPartition(TOPIC, partition_of(sink, self._partition_count))

    def _from_the_beginning(self, sink: str, partition: TopicPartition) -> _Seen:
        seen = self._seen[sink] = _Seen()
        seen.offset = self.admin.list_offsets({partition: EARLIEST})[partition].offset
        return seen

    def _read(self, sink: str, partition: TopicPartition, seen: _Seen, end: int) -> None:
        if self._reader is None:
            self._reader = RangeReader(self.settings, isolation_level="read_committed")
        try:
            for view in self._reader.read(partition.topic, partition.partition, seen.offset, end):
                for record in decode_records(view, seen.offset):
                    parsed_key = parse_key(record.key)
                    if parsed_key is not None and parsed_key[0] == sink:
                        seen.values[parsed_key[1]] = record.value
        except BaseException:
            self._reader.close()
            self._reader = None
            raise
        seen.offset = max(seen.offset, end)

    def close(self) -> None:
        """Close the connections."""
        for sink in list(self._coordinators):
            self.resign(sink)
        for one in (self._reader, self._plain):
            if one is not None:
                one.close()
        self._reader = self._plain = None
        self.admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
