"""The commit or abort of one batch of an exactly-once sink, by a process that has the results of the batch's
tasks. It may crash after any step.

    commit(b)   1 fence           the decisions of every older committer will be refused
                2 last_decision   read to the end; the first time, also that of the identity that an
                                  earlier release gave the sink, which is fenced and finished
                3 check           b is decided: that decision counts, and the new transactions are strays
                                  a later batch is decided, or a newer run of a query has decided: refuse
                                  else: finish the previous batch; when the decision is written, all
                                  transactions of b must be ongoing
                4 decide          commit the transaction that holds the decision: THE commit point
                5 end_all         commit each transaction that the decision names, record that it is finished
                6 sweep           condemn every other open transaction of the sink, and abort it
    abort(b)    fence, last_decision, end_all of the last decision, sweep

After each step `at` is called with its name. If the process dies there, the next committer finds everything
that it needs. If the process is suspended there, it may continue at any time: its requests are then refused
(decide, condemn: it was fenced, or its transaction timed out), or their outcome was settled before (end_all,
and the aborts of condemned transactions).
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from sparklog.client.admin.calls import ItemsFailed
from sparklog.client.clock import entropy, instant
from sparklog.client.exactly_once.decision_log import DecisionLog, LastDecision
from sparklog.client.exactly_once.decisions import (
    CONDEMNED_MAX,
    Decision,
    coordinator_id,
    prefix_of,
    sink_name,
)
from sparklog.client.failures import TransactionError
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.errors import ErrorCode, SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin.transactions import TransactionDescription

Older = Literal["refuse", "fail", "skip"]
"""The result for a batch if a later one is decided: an error about the checkpoint, an error about the
version, or no effect and a warning.
"""

_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")
_SHOWN: Final = 3
_HASTE_MS_MAX: Final = 15_000
"""The part of a transaction's timeout that must be left beyond the coordinator's own; a tenth of the timeout
if that is less. Brokers check for timeouts every ten seconds, and their clocks differ.
"""
_BATCH_DIGITS_MAX: Final = 19
_RUNS_MAX: Final = 16
"""The number of runs that a decision names. A run before these counts as a new one: it takes over, and no
batch is written twice.
"""


class CheckpointOlderThanSink(SparklogError):
    """A later batch of the query is already committed: the query was started from an old checkpoint, or
    twice.
    """


class VersionOlderThanSink(SparklogError):
    """A later version of the application is already committed."""


class SinkTakenOver(SparklogError):
    """A query that was started later writes to the sink."""


class BatchNotWhole(SparklogError):
    """Some transactions of the batch cannot be committed, and none was: the batch has to be written again."""


class TransactionsLost(SparklogError):
    """A batch is decided, but some of its transactions were aborted: their records are lost."""


class Committer:
    """Commits the batches of one sink. Subclasses may override `at` to observe each step."""

    def __init__(self, log: DecisionLog, identity: str, *, sink: str | None = None, former: str = "") -> None:
        """`sink` is its name in ids, if its identity is not known; `former` is its identity in earlier
        releases.
        """
        self.identity = identity
        self._former = "" if former == identity else former
        self.sink = sink_name(identity) if sink is None else sink
        self._log = log
        self._admin = log.admin

    def at(self, step: str) -> None:
        """Called after each step: "fence", "last_decision", "check", "decide", "end_all", "condemn" (if there
        are any), "sweep".
        """

    # -- public operations -----------------------------------------------------------------------------------

    def commit(
        self,
        query: str,
        batch: int,
        transactions: Sequence[ProducerIdentity],
        ends: Mapping[str, Mapping[int, int]],
        *,
        older: Older = "refuse",
        is_job: bool = False,
        run: str = "",
        record_count: int = -1,
    ) -> None:
        """Commit a batch exactly once, also after earlier attempts. Raises one of the errors above, or the
        error of a broker.

        `run` identifies the run of the query: once another run has committed, this one is refused.
        `record_count` is the number of records in `transactions`, -1 if it is not known.
        """
        is_fenced_anew = self.fence()
        self.at("fence")
        last = self.last_decision() if is_fenced_anew else self._log.known(self.sink)
        if last is None and self._former:
            last = self._former_decision()
        self.at("last_decision")
        runs = self._runs(last, run, batch)
        if last is not None and last.decision.query == query and last.decision.batch >= batch:
            decided = last.decision
            if decided.batch > batch:
                self._refuse_or_warn(decided, batch, older)
            # This batch or a later one is decided already: the new transactions are not needed.
            self._finish(last)
            if decided.batch == batch and -1 != decided.record_count != record_count != -1:
                self._warn(
                    f"batch {batch} was committed with {decided.record_count} records, and has "
                    f"{record_count} now, which are dropped: where the checkpoint is a copy from before that "
                    f"batch, what it has read beyond it is not written"
                )
            # Its transactions are ended: what remains to be decided is who goes on from here.
            deciding = replace(decided, identity=self.identity, transactions=(), runs=runs)
            is_new = (decided.identity, decided.runs) != (deciding.identity, deciding.runs)
        else:
            self._finish_other(last, query)
            sorted_ends = {topic: dict(sorted(of_topic.items())) for topic, of_topic in sorted(ends.items())}
            unique, named = entropy(16).hex(), tuple(transactions)
            decided = deciding = Decision(
                self.identity, query, batch, unique, named, sorted_ends, is_job, runs, record_count
            )
            is_new = True
        if is_new:
            try:
                self.decide(deciding)
            except TransactionError:
                if is_fenced_anew:
                    self.check(deciding.transactions, batch)  # after a timeout, the timeout is the cause
                    raise
                # Spark has several processes commit for one query, in turn where queries run side by side: a
                # cached fence may have been replaced by another process of this query. Start from the
                # beginning; if the other was another driver, this attempt fails.
                self.commit(
                    query,
                    batch,
                    transactions,
                    ends,
                    older=older,
                    is_job=is_job,
                    run=run,
                    record_count=record_count,
                )
                return
            self.at("decide")
            self._finish(LastDecision(deciding, is_finished=False))
        self.at("end_all")
        is_other_query = (
            last is not None and last.decision.query != query
        )  # its batches had their own numbers
        self.sweep(decided, batch_max=None if is_other_query else decided.batch)
        self.at("sweep")
        if is_job:
            self._log.resign(self.sink)  # no later call uses this sink

    def abort(
        self,
        query: str | None,
        batch: int,
        transactions: Sequence[ProducerIdentity] = (),
        *,
        is_whole: bool = False,
    ) -> None:
        """Abort a batch, unless it is decided: a decided batch is committed, because `commit` may have failed
        on the way.

        `transactions` are the known transactions of the batch. If they are complete, no other transaction of
        the batch is aborted: a newer driver may be about to decide on its own attempt.
        """
        self.fence(is_anew=True)
        self.at("fence")
        last = self.last_decision()
        self.at("last_decision")
        if last is not None and last.decision.query == query and last.decision.batch > batch:
            # A newer driver has taken over, and all open transactions except these are its own.
            self.sweep(last.decision, batch_max=-1, own=transactions)
            return
        if last is not None:
            self._finish(last)
            self.at("end_all")
        decided_batch = -1 if last is None or last.decision.query != query else last.decision.batch
        own = transactions if decided_batch < batch else ()
        self.sweep(
            None if last is None else last.decision, batch_max=decided_batch if is_whole else batch, own=own
        )
        self.at("sweep")

    def resolve(self, *, accepts_loss: bool = False) -> tuple[Decision | None, int]:
        """Commit the decided transactions of a driver that does not return, and abort the others; returns the
        decision and the number of aborted transactions.

        `accepts_loss` continues although decided transactions are lost.
        """
        self.fence(is_anew=True)
        last = self.last_decision()
        if last is not None:
            try:
                self._finish(last)
            except TransactionsLost as lost:
                if not accepts_loss:
                    raise
                self._warn(f"the loss is accepted: {lost}")
                self._log.finish(last.decision)
        decided = None if last is None else last.decision
        return decided, self.sweep(decided)

    # -- the steps -------------------------------------------------------------------------------------------

    def fence(self, *, is_anew: bool = False) -> bool:
        """Step 1; see `DecisionLog.fence`."""
        return self._log.fence(self.sink, is_anew=is_anew)

    def last_decision(self) -> LastDecision | None:
        """Step 2: after the fence, so that no later decision can appear."""
        return self._log.last(self.sink)

    def check(self, transactions: Sequence[ProducerIdentity], batch: int) -> None:
        """Step 3: check that every transaction is ongoing, with the producer id and epoch that its task
        reported, and far enough from its timeout; raises BatchNotWhole.
        """
        described, now_ms, condemned = (
            self._described(transactions),
            instant().wall_ms,
            self._log.condemned(self.sink),
        )
        wrong = [
            f"{one.transactional_id} is {_shown(described.get(one.transactional_id))}"
            for one in transactions
            if one.transactional_id in condemned
            or not _is_ongoing(one, described, now_ms + self._log.coordinator_timeout_ms)
        ]
        if wrong:
            raise BatchNotWhole(
                f"batch {batch} of sink {self.identity!r} is not committed: {len(wrong)} of "
                f"{len(transactions)} transactions are no longer"
                f" open, or not for long ({'; '.join(wrong[:_SHOWN])}): a newer driver has taken over, or "
                f"the batch took longer than"
                " kafka.transaction.timeout.ms; start the query again and it writes the batch anew"
            )

    def decide(self, decision: Decision) -> None:
        """Steps 3 and 4: the check is done inside the deciding transaction, so that its timeout covers the
        time between the two.
        """

        def check() -> None:
            self.check(decision.transactions, decision.batch)
            self.at("check")

        self._log.decide(decision, check)

    def end_all(self, decision: Decision) -> None:
        """Step 5: commit the transactions that a decision names, also if an earlier attempt did. Raises
        TransactionsLost.
        """
        refused = self.end(decision.transactions, is_commit=True)
        if not refused:
            return
        doubtful = [one for one in decision.transactions if one.transactional_id in refused]
        described = self._described(doubtful)
        forgotten = [one.transactional_id for one in doubtful if one.transactional_id not in described]
        lost = [
            f"{one.transactional_id} is {_shown(described.get(one.transactional_id))}"
            for one in doubtful
            if one.transactional_id in described and described[one.transactional_id].state not in _COMMITTED
        ]
        if lost:
            raise TransactionsLost(
                f"batch {decision.batch} of sink {self.identity!r} is decided, but the brokers aborted "
                f"{len(lost)} of its"
                f" {len(decision.transactions)} transactions before they were told "
                f"({'; '.join(lost[:_SHOWN])}): their records are LOST."
                " Was the driver away for longer than kafka.transaction.timeout.ms? What the others wrote is "
                "there, so writing the batch"
                f" again would write it twice; to go on without it: sparklog transactions resolve --sink "
                f"{self.sink} --accept-loss"
            )
        if forgotten:
            self._warn(
                f"the brokers have forgotten {len(forgotten)} transactions of batch {decision.batch}, which "
                f"ended long ago"
            )

    def sweep(
        self, decided: Decision | None, *, batch_max: int | None = None, own: Sequence[ProducerIdentity] = ()
    ) -> int:
        """Step 6: abort the open, undecided transactions of the sink, of batches up to `batch_max`, and
        `own`; returns their number.

        A paused driver may get here long after a newer one took over: it can then condemn nothing, and the
        newer one does the work. Later drivers read the condemned transactions and do not decide on them,
        however late the aborts are.
        """
        kept = {
            coordinator_id(self.sink),
            *(one.transactional_id for one in (decided.transactions if decided is not None else ())),
        }
        # Condemned transactions stay condemned: list them first, because a record replaces the previous one.
        condemned = self._log.condemned(self.sink)
        to_be_aborted = condemned | {one.transactional_id for one in own}
        found = [
            one.transactional_id
            for one in self._admin.list_transactions(states=["Ongoing"], prefix=prefix_of(self.sink))
        ]
        strays = [
            name
            for name in found
            if name not in kept
            and (batch_max is None or _batch_of(name) <= batch_max or name in to_be_aborted)
        ]
        self._log.settle()  # meanwhile it is decided
        described = self._describe(sorted(strays, key=lambda name: name not in condemned))
        open_now = [
            ProducerIdentity(name, one.producer_id, one.producer_epoch)
            for name, one in described.items()
            if one.state == "Ongoing"
        ]
        aborted = 0
        try:
            for start in range(0, len(open_now), CONDEMNED_MAX):
                lot = open_now[start : start + CONDEMNED_MAX]
                self._log.condemn(self.sink, lot)
                self.at("condemn")
                self.end(lot, is_commit=False)
                aborted += len(lot)
            if open_now:
                self._log.condemn(self.sink, ())
        except TransactionError:
            pass  # fenced: the remaining transactions are those of the newer driver
        return aborted

    def end(self, identities: Sequence[ProducerIdentity], *, is_commit: bool) -> dict[str, ErrorCode]:
        """End transactions; returns those that the broker cannot end, with its errors. Raises if no broker
        answers.
        """
        if not identities:
            return {}
        try:
            self._admin.end_transactions(identities, is_commit=is_commit)
        except ItemsFailed as failed:
            for error in failed.errors.values():
                if error.code not in _ENDED_OTHERWISE:
                    raise error from None
            return {name: error.code for name, error in failed.errors.items()}
        return {}

    # -- inside ----------------------------------------------------------------------------------------------

    def _former_decision(self) -> LastDecision | None:
        """The last decision under the former identity, finished. Its committers are fenced first, so that no
        later one appears there.
        """
        former = Committer(self._log, self._former)
        decision, _ = former.resolve()
        self._log.resign(former.sink)
        return None if decision is None else LastDecision(decision, is_finished=True)

    def _runs(self, last: LastDecision | None, run: str, batch: int) -> tuple[str, ...]:
        """The runs that a decision of this one names; raises SinkTakenOver if a later run has decided."""
        runs = () if last is None else last.decision.runs
        if not run or runs[:1] == (run,):
            return runs
        if last is not None and run in runs:
            raise SinkTakenOver(
                f"batch {batch} of sink {self.identity!r} is not committed: query {last.decision.query}, "
                f"started later, has taken over and committed batch {last.decision.batch}. Two queries write "
                f"to this sink, as from a checkpoint and its copy, or with one sinkId: stop one of them, or "
                f"give it a sinkId of its own"
            )
        return (run, *runs)[:_RUNS_MAX]

    def _finish_other(self, last: LastDecision | None, query: str) -> None:
        if last is None:
            return
        if last.decision.identity not in (self.identity, self._former):
            raise SparklogError(
                f"sink {self.identity!r} and sink {last.decision.identity!r} have one name, {self.sink}: "
                f"give one of them another sinkId"
            )
        self._finish(last)
        if last.decision.query != query:
            self._warn(
                f"query {last.decision.query} wrote up to batch {last.decision.batch}; now query {query} "
                f"begins batches of its own: where"
                " its checkpoint is a new one, what it reads again is written again"
            )

    def _finish(self, last: LastDecision) -> None:
        if last.is_finished:
            return
        self.end_all(last.decision)
        self._log.finish(last.decision)

    def _warn(self, what: str) -> None:
        """In a Spark worker the warning appears in Spark's log."""
        warnings.warn(f"exactly-once sink {self.identity!r}: {what}", stacklevel=3)

    def _refuse_or_warn(self, decided: Decision, batch: int, older: Older) -> None:
        """What follows for a batch before the one that is decided."""
        if older == "refuse":
            raise self._too_old(decided, batch)
        reason = (
            f"version {batch} of application {decided.query!r} is lower than the last one that was written, "
            f"{decided.batch}"
        )
        if older == "fail":
            raise VersionOlderThanSink(
                f"{reason}: nothing is written. If the query begins anew, as with a new checkpoint, give it "
                f"another txnAppId; txnConflict=skip drops such writes"
            )
        if self._log.is_news(self.sink, decided.unique):
            self._warn(
                f"{reason}: this write is dropped, and so is every one up to version {decided.batch}. If the "
                f"query begins anew, as with a new checkpoint, give it another txnAppId; txnConflict=fail "
                f"makes such a write fail"
            )

    def _too_old(self, decided: Decision, batch: int) -> CheckpointOlderThanSink:
        return CheckpointOlderThanSink(
            f"batch {batch} of query {decided.query} comes after batch {decided.batch} was committed to sink "
            f"{self.identity!r}:"
            " the checkpoint is older than the sink, as after restoring a copy of it, or the query runs "
            "twice. Start from the newest"
            " checkpoint; or, to write again what lies between, give the query a new checkpoint, or another "
            "sinkId"
        )

    def _described(self, transactions: Iterable[ProducerIdentity]) -> "Mapping[str, TransactionDescription]":
        return self._describe([one.transactional_id for one in transactions])

    def _describe(self, names: Sequence[str]) -> "Mapping[str, TransactionDescription]":
        """Descriptions of these ids; ids unknown to the brokers are left out."""
        if not names:
            return {}
        try:
            return self._admin.describe_transactions(names)
        except ItemsFailed as failed:
            for error in failed.errors.values():
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise error from None
            described: Mapping[str, TransactionDescription] = failed.results
            return described


_ENDED_OTHERWISE: Final = frozenset(
    {
        *(ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        *(ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    }
)


def _batch_of(transactional_id: str) -> int:
    """The batch number in a task's transactional id: sl.<sink>.<batch>.<partition>.<unique>."""
    batch = transactional_id.split(".")[2]
    return int(batch) if batch.isdecimal() and len(batch) <= _BATCH_DIGITS_MAX else 0


def _is_ongoing(
    one: ProducerIdentity, descriptions: "Mapping[str, TransactionDescription]", until_ms: int
) -> bool:
    described = descriptions.get(one.transactional_id)
    if described is None or described.state != "Ongoing":
        return False
    # A broker that looks for a decision after the timeout, and finds none, aborts: no committer may decide
    # after that.
    over_ms = described.start_time_ms + described.timeout_ms - min(_HASTE_MS_MAX, described.timeout_ms // 10)
    return until_ms < over_ms and (described.producer_id, described.producer_epoch) == (
        one.producer_id,
        one.producer_epoch,
    )


def _shown(described: "TransactionDescription | None") -> str:
    return "not known" if described is None else f"{described.state} at epoch {described.producer_epoch}"
