"""Exactly-once batches: tasks write in transactions of their own, and the driver decides which are committed.

    executor   at the first row: InitProducerId of sl.<sink>.<batch>.<partition>.<unique>, then all batches in
                 one transaction, each acknowledged
               message: the transaction and the end offsets of its records; the transaction stays open
    driver     `Committer`: fence, read the last decision, check, decide, end all, sweep

Each attempt has a transactional id of its own, used once, so no attempt fences another. The next commit, or
the brokers at the timeout, abort a transaction that no decision names.

`sinkId` identifies the sink of a stream, else the query's id, which is in the checkpoint and which the tasks
report. Earlier releases had the checkpoint's path in place of the id: the first commit looks there, too. A
batch write is identified by `txnAppId`, else it is a job of its own.
"""

import json
import posixpath
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace
from pyspark.sql.datasource import WriterCommitMessage

from sparklog.client.admin.admin import Admin
from sparklog.client.clock import entropy
from sparklog.client.exactly_once.committer import Committer, Older
from sparklog.client.exactly_once.decisions import sink_name, task_id
from sparklog.client.producer.outbound_batch import Done
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError, SparklogError
from sparklog.model import ProducerEpoch, ProducerId
from sparklog.spark.connections import decision_log, query_of_checkpoint, transaction_timeout_ms
from sparklog.spark.delivery import NO_BATCH, AtLeastOnce, Delivery, Task
from sparklog.spark.option_values import Conflict, Guarantee
from sparklog.spark.options import Options

ABORT_MS: Final = 5_000
"""The time that a failed attempt spends on aborting its transaction before it leaves that to the next
commit.
"""


class NoSink(SparklogError):
    """Neither an option nor a task identifies the sink."""


class Job(NamedTuple):
    """A batch write: its sink, its query and version, whether it may be repeated, and what follows if its
    version is lower than the last.
    """

    identity: str
    query: str
    version: int
    is_repeatable: bool
    older: Older = "skip"


@dataclass
class SinkWritten(WriterCommitMessage):
    """The records written by one attempt of a task. `transaction` is open and holds them; None if there are
    no records.

    `ends` has the offset after its last record, by topic and partition.
    """

    task: Task
    identity: str
    transaction: tuple[str, int, int] | None
    record_count: int
    ends: dict[str, dict[int, int]] = field(default_factory=dict)


def delivery_for_stream(options: Options) -> Delivery:
    """The delivery of a stream's micro-batches: exactly once, unless the options say otherwise."""
    _check(options)
    if options.delivery is Guarantee.AT_LEAST_ONCE:
        return AtLeastOnce(options.client)
    return ExactlyOnce(options.client, identity=options.sink_id or "", checkpoint=options.checkpoint)


def delivery_for_batch(options: Options) -> Delivery:
    """The delivery of a batch write: at least once, unless the options say otherwise."""
    _check(options)
    app, version = options.txn_app_id, options.txn_version
    if (app is None) != (version is None):
        raise SettingsError(
            "options 'txnAppId' and 'txnVersion' belong together: the application, and the number of this "
            "write"
        )
    if app is None or version is None:
        if options.delivery is not Guarantee.EXACTLY_ONCE:
            return AtLeastOnce(options.client)
        unique = entropy(16).hex()
        return ExactlyOnce(options.client, job=Job(f"job:{unique}", unique, 0, is_repeatable=False))
    if options.delivery is Guarantee.AT_LEAST_ONCE:
        raise SettingsError(
            "options 'txnAppId' and 'txnVersion' make a write count once: leave out delivery=at_least_once"
        )
    # One application may write to several topics under one version, as it may to several tables.
    identity = json.dumps(["txnAppId", app, options.topic or "", options.sink_id or ""])
    older: Older = "fail" if options.txn_conflict is Conflict.FAIL else "skip"
    return ExactlyOnce(options.client, job=Job(identity, app, version, is_repeatable=True, older=older))


def _check(options: Options) -> None:
    if options.client.transactional_id is not None:
        raise SettingsError(
            "option 'kafka.transactional.id' cannot be set: two tasks with one transactional id would fence "
            "each other"
        )
    if options.delivery is Guarantee.EXACTLY_ONCE and (
        options.client.required_acks != -1 or not options.client.enable_idempotence
    ):
        raise SettingsError(
            "delivery=exactly_once needs kafka.acks=all and kafka.enable.idempotence=true: leave both out"
        )


class ExactlyOnce:
    """The delivery of one sink. In a stream, a copy in another process commits, so all state comes from the
    options and the messages.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        identity: str = "",
        checkpoint: str = "",
        job: Job | None = None,
    ) -> None:
        """`identity` is that of a stream's sink, empty if it is the query's id; `checkpoint` is the path of
        its checkpoint, if an option has it; `job` is for a batch write.
        """
        self._settings = replace(settings, acks="all", enable_idempotence=True)
        self._identity = identity if job is None else job.identity
        self._checkpoint = checkpoint
        self._job = job

    def committer(self, identity: str, former: str = "") -> Committer:
        """The committer of the sink with that identity, and the one that earlier releases gave it."""
        return Committer(decision_log(self._settings), identity, former=former)

    # -- in tasks --------------------------------------------------------------------------------------------

    def open(self, task: Task) -> "TransactionWriter":
        identity = self._identity_in(task)
        batch = task.batch_id if self._job is None else self._job.version
        transactional_id = task_id(sink_name(identity), batch, task.partition, entropy(16).hex())
        timeout_ms = transaction_timeout_ms(self._settings)
        settings = replace(
            self._settings, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        return TransactionWriter(settings, task, identity)

    def nothing_written(self, task: Task) -> SinkWritten:
        return SinkWritten(task, self._identity_in(task), None, 0)

    def _identity_in(self, task: Task) -> str:
        if self._job is not None:
            return self._job.identity
        identity = self._identity or task.query_id or normalized(self._checkpoint)
        if not identity or task.batch_id == NO_BATCH:
            raise NoSink(
                "this runtime does not tell tasks which query and micro-batch they write (local properties "
                "sql.streaming.queryId and"
                " streaming.sql.batchId): name the sink in foreachBatch, by the options txnAppId (a name for "
                "it) and txnVersion (the number"
                " of the micro-batch) of a batch write, or write the stream with delivery=at_least_once"
            )
        if not self._identity and not task.query_id:
            warnings.warn(
                f"this runtime does not tell tasks the query's id, so the sink is identified by its "
                f"checkpoint's path, {identity!r}: if the checkpoint is moved, its last batch may be written "
                f"twice. Set the option sinkId to a name of the sink that stays the same",
                UserWarning,
                stacklevel=2,
            )
        return identity

    # -- on the driver ---------------------------------------------------------------------------------------

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        written = [message for message in messages if isinstance(message, SinkWritten)]
        if len(written) != len(messages):
            raise SparklogError(
                f"{len(messages) - len(written)} of {len(messages)} tasks sent no message: "
                f"nothing is committed"
            )
        found = self._found(written)
        if found is None:
            return  # no task wrote a row
        identity, query, run = found
        transactions = _transactions(written)
        batch, older, is_job = batch_id, _REFUSE, False
        if self._job is not None:
            batch, older, is_job = self._job.version, self._job.older, not self._job.is_repeatable
            if is_job and not transactions:
                return
        self.committer(identity, self._former).commit(
            query,
            batch,
            transactions,
            _ends(written),
            older=older,
            is_job=is_job,
            run=run,
            record_count=sum(message.record_count for message in written),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        written = [message for message in messages if isinstance(message, SinkWritten)]
        found = self._found(written)
        if found is None:  # no task has reported the query
            identity, query = self._identity or query_of_checkpoint(self._checkpoint), None
        else:
            identity, query, _ = found
        if identity:  # otherwise the sink is unknown: open transactions end with the next batch or by timeout
            batch, is_whole = (
                batch_id if self._job is None else self._job.version,
                len(written) == len(messages) > 0,
            )
            committer = self.committer(identity, self._former)
            committer.abort(query, batch, _transactions(written), is_whole=is_whole)

    @property
    def _former(self) -> str:
        return "" if self._identity else self._checkpoint.rstrip("/")

    def _found(self, written: Sequence[SinkWritten]) -> tuple[str, str, str] | None:
        """The sink, the query and its run, from the options or the tasks; None if neither has them."""
        if self._job is not None:
            return self._job.identity, self._job.query, ""
        if not written:
            return None
        return written[0].identity, written[0].task.query_id, written[0].task.run_id


def normalized(checkpoint: str) -> str:
    """The path of a checkpoint in one of its spellings: `s3a://` and `s3n://` are `s3://`, `file:` is left
    out, and the path has no empty or dot segments.
    """
    scheme, authority, path = re.fullmatch(
        r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", checkpoint, re.DOTALL
    ).groups(default="")  # type: ignore[union-attr]  # it matches any text
    if not path and not authority:
        return ""
    kind = _SCHEMES.get(scheme.lower(), scheme.lower())
    before = (kind and f"{kind}:") + (authority and f"//{authority.lower()}")
    return before + re.sub(r"^//+", "/", posixpath.normpath(path or "/"))


_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "file": ""}
_REFUSE: Final[Older] = "refuse"


def _transactions(written: Sequence[SinkWritten]) -> list[ProducerIdentity]:
    transactions = [message.transaction for message in written if message.transaction is not None]
    return [
        ProducerIdentity(name, ProducerId(number), ProducerEpoch(epoch))
        for name, number, epoch in transactions
    ]


def _ends(written: Sequence[SinkWritten]) -> dict[str, dict[int, int]]:
    ends: dict[str, dict[int, int]] = {}
    for message in written:
        for topic, of_task in message.ends.items():
            of_topic = ends.setdefault(topic, {})
            for partition, end in of_task.items():
                of_topic[partition] = max(end, of_topic.get(partition, end))
    return ends


class TransactionWriter:
    """Writes the rows of one attempt in one transaction, which `finish` leaves open."""

    def __init__(self, settings: ClientSettings, task: Task, identity: str) -> None:
        self._settings = settings
        self._task = task
        self._identity = identity
        self._record_count = 0
        self._ends: dict[str, dict[int, int]] = {}
        self._client = BatchWriter(settings, on_done=self._done)
        try:
            self._client.init()
            self._client.begin()
        except BaseException:
            self._client.close()
            raise

    def partition_count(self, topic: str) -> int:
        return self._client.partition_count(topic)

    def message_bytes_max(self, topic: str) -> int | None:
        return self._client.message_bytes_max(topic)

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        self._client.add(topic, partition, batch, record_count)
        self._record_count += record_count

    def finish(self) -> SinkWritten:
        self._client.flush()
        name, producer_id, epoch = self._client.identity
        self._client.close()
        return SinkWritten(
            self._task, self._identity, (name, producer_id, epoch), self._record_count, self._ends
        )

    def abort(self) -> None:
        """Closes, and aborts the transaction if the coordinator responds; otherwise the next commit aborts
        it.
        """
        identity = self._client.identity
        self._client.close()
        settings = replace(
            self._settings,
            transactional_id=None,
            default_api_timeout_ms=ABORT_MS,
            request_timeout_ms=ABORT_MS,
        )
        try:
            with Admin.from_settings(settings) as admin:
                admin.end_transaction(identity, is_commit=False)
        except SparklogError:
            return  # an error is already propagating

    def _done(self, done: Done) -> None:
        if done.error is None and done.base_offset >= 0:
            topic, partition = done.batch.topic_partition
            of_topic = self._ends.setdefault(topic, {})
            last = done.parts[-1] if done.parts else done
            of_topic[partition] = max(last.base_offset + last.batch.record_count, of_topic.get(partition, 0))
