"""`format("sparklog_hooked")`: sparklog, whose sinks ask the test at every point, at the address in option
`points`, for workers.
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.client.exactly_once.committer import Committer
from sparklog.client.exactly_once.decision_log import DecisionLog
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.errors import ErrorCode
from sparklog.spark.connections import decision_log
from sparklog.spark.delivery import Delivery, Task
from sparklog.spark.exactly_once import ExactlyOnce, delivery_for_stream
from sparklog.spark.options import Options
from sparklog.spark.source import SparklogSource
from sparklog.spark.writers import StreamSink
from tests.spark.kill_points.points import Point, ask


class HookedSource(SparklogSource):
    """The data source of the kill-point tests."""

    @classmethod
    def name(cls) -> str:
        return "sparklog_hooked"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "HookedSink":  # noqa: N802
        given = {key: value for key, value in self.options.items() if key != "points"}
        return HookedSink(Options.parse(given), schema, self.options["points"])


class HookedSink(StreamSink):
    """Asks before and after everything that Spark calls."""

    def __init__(self, options: Options, schema: StructType, address: str) -> None:
        self.address = address
        self.topic = options.topic or ""
        super().__init__(options, schema, hooked(delivery_for_stream(options), options, address))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = Task.current()
        self._ask_in("begun", task)
        message = super().write(iterator)
        self._ask_in("written", task)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        ask(self.address, Point("commit", self.topic, batchId))
        super().commit(messages, batchId)
        ask(self.address, Point("committed", self.topic, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        ask(self.address, Point("abort", self.topic, batchId))
        super().abort(messages, batchId)
        ask(self.address, Point("aborted", self.topic, batchId))

    def _ask_in(self, name: str, task: Task) -> None:
        ask(self.address, Point(name, self.topic, task.batch_id, task.partition, task.attempt))


def hooked(delivery: Delivery, options: Options, address: str) -> Delivery:
    """The same delivery, asking at every step if it is one with steps."""
    if not isinstance(delivery, ExactlyOnce):
        return delivery
    return HookedExactlyOnce(options, address)


class HookedExactlyOnce(ExactlyOnce):
    """Exactly once, by a committer that asks."""

    def __init__(self, options: Options, address: str) -> None:
        super().__init__(options.client, identity=options.sink_id or "", checkpoint=options.checkpoint)
        self.settings = options.client
        self.address = address
        self.topic = options.topic or ""
        self.batch = -1

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self.batch = batch_id
        super().commit(messages, batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self.batch = batch_id
        super().abort(messages, batch_id)

    def committer(self, identity: str, former: str = "") -> Committer:
        return HookedCommitter(
            decision_log(self.settings),
            identity,
            lambda step: ask(self.address, Point(step, self.topic, self.batch)),
            former=former,
        )


class HookedCommitter(Committer):
    """A committer that tells of each step, and of the first of several transactions that it commits."""

    def __init__(self, log: DecisionLog, identity: str, told: Callable[[str], None], *, former: str) -> None:
        super().__init__(log, identity, former=former)
        self.told = told

    def at(self, step: str) -> None:
        self.told(step)

    def end(self, identities: Sequence[ProducerIdentity], *, is_commit: bool) -> dict[str, ErrorCode]:
        if not is_commit or len(identities) < 2:
            return super().end(identities, is_commit=is_commit)
        refused = super().end(identities[:1], is_commit=True)
        self.told("first_end")
        return refused | super().end(identities[1:], is_commit=True)
