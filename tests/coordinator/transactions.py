"""A transaction shard with commands given as text: its records are replayed at once, and replies are returned
at once.

    shard [tv=2 timeout-max=900 abort-interval=10 expiration= sink-expiration= expiry-interval=
           record-bytes= two-phase=yes ids=]
    init ID [as=NAME v=5 timeout=60 keep=yes prepared=yes two-phase=yes pid= epoch=]
    add ID t-0,t-1 [as=NAME v=3 verify=yes pid= epoch=]
    offsets ID 7 [as=NAME]
    end ID commit|abort [as=NAME v=5 pid= epoch=]
    written ID [failed=t-0]      verdict ID commit|abort|ask-again
    describe ID...               list [states= pids= duration= pattern=]
    exhaust ID EPOCH      versions      advance SECONDS      reload      abandon ID API
    level tv=             ids count=    wall SECONDS

A NAME (the id itself, if none is given) is a producer, which uses the producer id and epoch that it got last.
`init … keep=yes` sends them. `v` of `end` and `add` is the request version, which implies the client's
transaction version: 5 is TV2.
"""

from typing import cast

import msgspec

from sparklog.errors import code_of
from sparklog.model import Instant, Millis, Offset, ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.shard import CoordinatorRecord, Decision
from sparklog_server.coordinator.txn.events import (
    AddOffsets,
    Answer,
    MarkersDue,
    MarkersWritten,
    Verdict,
    VerdictDue,
)
from sparklog_server.coordinator.txn.records import decode_record, encode_record
from sparklog_server.coordinator.txn.shard import TxnShard
from sparklog_server.coordinator.txn.states import NAMES
from sparklog_server.coordinator.txn.transaction_config import TransactionConfig
from sparklog_server.metadata.features import TRANSACTION_VERSION
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.metadata.records import FeatureLevelRecord
from tests.coordinator.clock import BEGINNING, EPOCH_MS, ticks
from tests.story import arguments

VERDICTS = {"commit": Answer.COMMIT, "abort": Answer.ABORT, "ask-again": Answer.ASK_AGAIN}


def partition(text: str) -> TopicPartition:
    """`t-0`."""
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def image_of(level: int) -> MetadataImage:
    """A cluster of that transaction version."""
    record: Message = FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=level)
    return MetadataImage().apply([(Offset(0), record)])[0]


class TxnWorld:
    """One shard, its clock and its log, and the identities of producers."""

    def __init__(
        self, settings: TransactionConfig | None = None, *, level: int = 2, producer_ids: int = 1_000_000
    ) -> None:
        self.settings = settings or TransactionConfig()
        self.now = BEGINNING
        self.log: list[CoordinatorRecord] = []
        self.level = level
        self.producers: dict[str, tuple[int, int]] = {}
        self.due: dict[str, MarkersDue] = {}
        self.verdicts: dict[str, VerdictDue] = {}
        self.traced: list[str] = []
        self.waiting: dict[str, object] = {}
        self._next_producer_id = 0
        self._producer_ids_limit = producer_ids
        self.shard = self.make_shard()

    def take_producer_id(self) -> ProducerId | None:
        """Ids 0, 1, 2, …, until they are used up."""
        if self._next_producer_id >= self._producer_ids_limit:
            return None
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id - 1)

    def trace(self, event: str, **fields: object) -> None:
        told = " ".join(
            f"{name}={value}" for name, value in fields.items() if name in ("id", "reason", "first")
        )
        self.traced.append(f"{event} {told}")

    def make_shard(self) -> TxnShard:
        """A shard that has replayed the log."""
        shard = TxnShard(self.settings, take_producer_id=self.take_producer_id, trace=self.trace)
        for offset, record in enumerate(self.log):
            shard.replay(record.key, record.value, Offset(offset))
        self.took = shard.loaded(image_of(self.level), self.now)
        return shard

    # -- commands as values

    def decide(self, request: Message, version: int, token: object = None) -> Decision:
        """Decide, and replay the decision."""
        decision = self.shard.decide(Command(request, version), token, self.now)
        self.replay(decision)
        return decision

    def replay(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.replay_own(record.message, Offset(len(self.log)))
            self.log.append(record)
        for answer in decision.answers:
            if isinstance(answer.token, MarkersDue):
                self.due[answer.token.transactional_id] = answer.token
            elif isinstance(answer.token, VerdictDue):
                self.verdicts[answer.token.transactional_id] = answer.token

    def advance(self, seconds: float) -> list[tuple[Instant, Decision]]:
        """Let time pass, tick by tick as the shard requests it; returns the decisions with their times."""
        decided = []
        for decision in ticks(self, round(seconds * 1_000_000)):
            self.replay(decision)
            decided.append((self.now, decision))
        return decided

    def reload(self) -> None:
        self.shard = self.make_shard()
        for decision in self.took:
            self.replay(decision)

    # -- commands as text

    def run(self, line: str) -> list[str]:
        words, named = arguments(line)
        return list(getattr(self, "_" + words[0].replace("-", "_"))(words[1:], named))

    def _shard(self, words: list[str], named: dict[str, str]) -> list[str]:
        default = TransactionConfig()

        def ms(name: str, value: int) -> int:
            return round(float(named[name]) * 1000) if name in named else value

        settings = TransactionConfig(
            timeout_max_ms=ms("timeout-max", default.timeout_max_ms),
            abort_interval_ms=ms("abort-interval", default.abort_interval_ms),
            expiration_ms=ms("expiration", default.expiration_ms),
            resolved_expiration_ms=ms("sink-expiration", default.resolved_expiration_ms),
            expiry_interval_ms=ms("expiry-interval", default.expiry_interval_ms),
            is_two_phase_enabled="two-phase" in named,
            record_bytes_max=int(named.get("record-bytes", default.record_bytes_max)),
        )
        ids = int(named.get("ids", 1_000_000))
        self.__init__(settings, level=int(named.get("tv", 2)), producer_ids=ids)  # type: ignore[misc]
        return []

    def _ask(self, what: str, request: Message, version: int) -> list[str]:
        token = what, len(self.log), self.now
        self.waiting[what] = token
        return self._told(self.decide(request, version, token))

    def _producer(self, transactional_id: str, named: dict[str, str]) -> tuple[int, int]:
        producer_id, epoch = self.producers.get(named.get("as", transactional_id), (-1, -1))
        return int(named.get("pid", producer_id)), int(named.get("epoch", epoch))

    def _init(self, words: list[str], named: dict[str, str]) -> list[str]:
        transactional_id = words[0] if words else ""
        is_kept = "keep" in named or "pid" in named or "epoch" in named
        producer_id, epoch = self._producer(transactional_id, named) if is_kept else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=round(float(named.get("timeout", "60")) * 1000),
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc="two-phase" in named,
            keep_prepared_txn="prepared" in named,
        )
        return self._ask(f"{named.get('as', transactional_id)} init", request, int(named.get("v", 5)))

    def _add(self, words: list[str], named: dict[str, str]) -> list[str]:
        topics: dict[str, list[int]] = {}
        for one in words[1].split(",") if len(words) > 1 else ():
            topics.setdefault(partition(one).topic, []).append(partition(one).partition)
        asked = AddPartitionsToTxnTransaction(
            words[0],
            *self._producer(words[0], named),
            verify_only="verify" in named,
            topics=[AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
        )
        request = AddPartitionsToTxnRequest(transactions=[asked])
        return self._ask(f"{named.get('as', words[0])} add", request, int(named.get("v", 3)))

    def _offsets(self, words: list[str], named: dict[str, str]) -> list[str]:
        request = AddOffsets(
            words[0], *self._producer(words[0], named), TopicPartition("__consumer_offsets", int(words[1]))
        )
        return self._ask(f"{named.get('as', words[0])} offsets", request, 4)

    def _end(self, words: list[str], named: dict[str, str]) -> list[str]:
        request = EndTxnRequest(words[0], *self._producer(words[0], named), words[1] == "commit")
        return self._ask(f"{named.get('as', words[0])} end", request, int(named.get("v", 5)))

    def _written(self, words: list[str], named: dict[str, str]) -> list[str]:
        due = self.due[words[0]]
        failed = tuple(partition(one) for one in named.get("failed", "").split(",") if one)
        done = tuple(one for one in due.partitions if one not in failed)
        told = MarkersWritten(words[0], due.producer_id, due.producer_epoch, done, failed)
        return self._told(self.decide(told, 0))

    def _verdict(self, words: list[str], named: dict[str, str]) -> list[str]:
        due = self.verdicts[words[0]]
        return self._told(
            self.decide(Verdict(words[0], due.producer_id, due.producer_epoch, VERDICTS[words[1]]), 0)
        )

    def _describe(self, words: list[str], named: dict[str, str]) -> list[str]:
        return self._ask("admin describe", DescribeTransactionsRequest(transactional_ids=words), 0)

    def _list(self, words: list[str], named: dict[str, str]) -> list[str]:
        request = ListTransactionsRequest(
            state_filters=[one for one in named.get("states", "").split(",") if one],
            producer_id_filters=[int(one) for one in named.get("pids", "").split(",") if one],
            duration_filter=round(float(named.get("duration", "-0.001")) * 1000),
            transactional_id_pattern=named.get("pattern"),
        )
        return self._ask("admin list", request, 2)

    def _advance(self, words: list[str], named: dict[str, str]) -> list[str]:
        started_us = self.now.mono_us
        lines = []
        for at, decision in self.advance(float(words[0])):
            elapsed = (at.mono_us - started_us) / 1_000_000
            lines += [f"+{elapsed:g}s {line}" for line in self._told(decision)]
        return lines

    def _wall(self, words: list[str], named: dict[str, str]) -> list[str]:
        """The wall clock steps."""
        self.now = Instant(self.now.mono_us, Millis(self.now.wall_ms + round(float(words[0]) * 1000)))
        return []

    def _ids(self, words: list[str], named: dict[str, str]) -> list[str]:
        self._producer_ids_limit = self._next_producer_id + int(named["count"])
        return []

    def _exhaust(self, words: list[str], named: dict[str, str]) -> list[str]:
        """exhaust ID EPOCH: set the producer's epoch as if it had been raised to it."""
        before = self.shard.transactions[words[0]]
        after = msgspec.structs.replace(before, producer_epoch=ProducerEpoch(int(words[1])))
        record = encode_record(words[0], after, self.level)
        self.replay(Decision((record,)))
        self.producers[words[0]] = after.producer_id, int(words[1])
        return []

    def _versions(self, words: list[str], named: dict[str, str]) -> list[str]:
        """The versions of the log's records."""
        return [
            " ".join(
                str(int.from_bytes(record.value[:2], "big"))
                for record in self.log
                if record.value is not None
            )
        ]

    def _level(self, words: list[str], named: dict[str, str]) -> list[str]:
        self.level = int(named["tv"])
        image = image_of(self.level)
        assert self.shard.image_changed(MetadataDelta(image, image), self.now) == []
        return []

    def _abandon(self, words: list[str], named: dict[str, str]) -> list[str]:
        self.shard.abandoned(self.waiting[" ".join(words)])
        return []

    def _reload(self, words: list[str], named: dict[str, str]) -> list[str]:
        refused = [f"refused {cast('tuple[str, int, Instant]', token)[0]}" for token in self.shard.waiting()]
        self.reload()
        return refused + [line for decision in self.took for line in self._told(decision)]

    # -- results

    def _told(self, decision: Decision) -> list[str]:
        lines = [told_record(record) for record in decision.records]
        for answer in decision.answers:
            token = answer.token
            if isinstance(token, MarkersDue):
                kind = "commit" if token.is_commit else "abort"
                named, who = (
                    " ".join(map(str, token.partitions)),
                    f"{token.producer_id}/{token.producer_epoch}",
                )
                lines.append(
                    f"markers {token.transactional_id} {kind} {who} tv{token.transaction_version} [{named}]"
                )
            elif isinstance(token, VerdictDue):
                lines.append(f"verdict? {token.transactional_id} {token.producer_id}/{token.producer_epoch}")
            else:
                what = cast("tuple[str, int, Instant]", token)[0]
                self._remember(what.split()[0], answer.reply)
                lines += [f"-> {what} {line}" for line in told_reply(answer.reply)]
        lines += [f"! {one}" for one in self.traced]
        self.traced.clear()
        return lines

    def _remember(self, name: str, reply: Message) -> None:
        if (
            isinstance(reply, (InitProducerIdResponse, EndTxnResponse))
            and not reply.error_code
            and reply.producer_id >= 0
        ):
            self.producers[name] = reply.producer_id, reply.producer_epoch


def told_record(record: CoordinatorRecord) -> str:
    """A record in one line; the live object must equal its decoded bytes."""
    transactional_id, transaction = decode_record(record.key, record.value)
    assert record.message == (transactional_id, transaction)
    if transaction is None:
        return f"tombstone {transactional_id}"
    named = " ".join(map(str, sorted(transaction.partitions)))
    more = ""
    if transaction.previous_producer_id not in (-1, transaction.producer_id):
        more += f" previous={transaction.previous_producer_id}"
    if transaction.next_producer_id != -1:
        more += f" next={transaction.next_producer_id}"
    start = "-" if transaction.start_ms == -1 else f"{(transaction.start_ms - EPOCH_MS) / 1000:g}s"
    who = f"{transaction.producer_id}/{transaction.producer_epoch}"
    return f"record {transactional_id} {NAMES[transaction.state]} {who} tv{transaction.client_version} [{named}] start={start}{more}"  # noqa: E501


def told_reply(reply: Message) -> list[str]:
    """A reply in a line or a few."""
    if isinstance(reply, (InitProducerIdResponse, EndTxnResponse)):
        who = "" if reply.producer_id < 0 else f" {reply.producer_id}/{reply.producer_epoch}"
        return [f"{code_of(reply.error_code).name}{who}"]
    if isinstance(reply, AddOffsetsToTxnResponse):
        return [code_of(reply.error_code).name]
    if isinstance(reply, AddPartitionsToTxnResponse):
        results = [
            (topic.name, one)
            for topic in reply.results_by_transaction[0].topic_results
            for one in topic.results_by_partition
        ]
        return [
            " ".join(
                f"{name}-{one.partition_index}={code_of(one.partition_error_code).name}"
                for name, one in results
            )
            or "nothing"
        ]
    if isinstance(reply, DescribeTransactionsResponse):
        return [
            f"{one.transactional_id} {code_of(one.error_code).name}"
            if one.error_code
            else f"{one.transactional_id} {one.transaction_state} {one.producer_id}/{one.producer_epoch} {one.transaction_timeout_ms} ms"  # noqa: E501
            f" {[f'{topic.topic}{topic.partitions}' for topic in one.topics]}"
            for one in reply.transaction_states
        ]
    assert isinstance(reply, ListTransactionsResponse), reply
    unknown = [f"unknown {name}" for name in reply.unknown_state_filters]
    return [
        *unknown,
        *(
            f"{one.transactional_id} {one.producer_id} {one.transaction_state}"
            for one in reply.transaction_states
        ),
    ] or ["nothing"]
