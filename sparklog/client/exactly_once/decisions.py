"""The decisions of an exactly-once sink, as records of the compacted topic `__sparklog_commits`, and the
transactional ids of the sink.

    sink      22 characters: base64url(sha256(identity)), without a `.`; the decision contains the identity
    ids       sl.<sink>.<batch>.<partition>.<unique>    one attempt of a task, its transaction used once
              sl.<sink>.coord                           the committer: initialising it fences all earlier ones
    records   key <sink>            -> Decision: these transactions are the batch, for any committer to end
              key <sink>.condemned  -> these are to be aborted: no later decision may name one
              key <sink>.finished   -> the `unique` of the decision whose transactions are all committed

The keys of a sink lie in one partition; the first two are written in the coordinator's transaction. Only
the last decision of a sink matters, since a decision is written after the previous one is finished; so
compaction keeps everything that is needed. Values are JSON, readable with any consumer.
"""

import base64
import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.errors import SparklogError
from sparklog.model import ProducerEpoch, ProducerId

TOPIC: Final = "__sparklog_commits"
PREFIX: Final = "sl."
PARTITION_COUNT: Final = 16
"""Sinks in one partition wait for each other's decisions while these are being committed: for milliseconds,
or for the timeout of a dead driver.
"""
RECORD_BYTES_MAX: Final = 4 << 20
"""The topic's `max.message.bytes`: the size of one request of a `BatchWriter`."""
VALUE_BYTES_MAX: Final = RECORD_BYTES_MAX - 65_536
"""The largest value of a decision: some 60 000 tasks."""
CONDEMNED_MAX: Final = 30_000
"""The most transactions that one record condemns: fewer than fit into `VALUE_BYTES_MAX`."""
_SINK_CHARACTERS: Final = 22
_COORDINATOR: Final = "coord"
_VERSION: Final = 1


class About(StrEnum):
    """The kinds of records of a sink; the value is the suffix of the key."""

    DECISION = ""
    CONDEMNED = ".condemned"
    FINISHED = ".finished"


class DecisionUnreadable(SparklogError):
    """A record of the topic is not in the format of sparklog, or of a later version."""


class DecisionTooLarge(SparklogError):
    """A batch has more tasks than one decision can name."""


class Decision(msgspec.Struct, frozen=True):
    """The commit point of one batch: `transactions` are to be committed; `ends` are the offsets after their
    records, by topic and partition.

    `unique` distinguishes two decisions for one batch. `is_job`: no later committer needs the decision once
    it is finished. `runs` are the last runs of queries that have written to the sink, the latest first: a
    query has one id for all of its runs, and a new one for each start. `record_count` is the number of
    records of the batch, -1 if an earlier release decided.
    """

    identity: str
    query: str
    batch: int
    unique: str
    transactions: tuple[ProducerIdentity, ...]
    ends: dict[str, dict[int, int]] = {}
    is_job: bool = False
    runs: tuple[str, ...] = ()
    record_count: int = -1

    @property
    def sink(self) -> str:
        """The name of the sink in ids and keys."""
        return sink_name(self.identity)


class _Value(msgspec.Struct):
    """The value of the record; a transaction is the part of its id after `sl.<sink>.`, with producer id and
    epoch.
    """

    version: int
    identity: str
    query: str
    batch: int
    unique: str
    transactions: list[tuple[str, int, int]]
    ends: dict[str, dict[int, int]] = {}
    is_job: bool = False
    runs: tuple[str, ...] = ()
    record_count: int = -1


class _Condemned(msgspec.Struct):
    """The value of the record; transactions as in a decision."""

    version: int
    transactions: list[tuple[str, int, int]]


_T = TypeVar("_T", _Value, _Condemned)


# -- names ---------------------------------------------------------------------------------------------------


def sink_name(identity: str) -> str:
    """The name of a sink in transactional ids."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).decode()[:_SINK_CHARACTERS]


def is_sink_name(text: str) -> bool:
    """Whether a text has the form of a sink's name."""
    return len(text) == _SINK_CHARACTERS and all(
        character.isascii() and (character.isalnum() or character in "-_") for character in text
    )


def prefix_of(sink: str) -> str:
    """The prefix that all transactional ids of the sink have, and no others."""
    return f"{PREFIX}{sink}."


def coordinator_id(sink: str) -> str:
    """The transactional id of the coordinator."""
    return prefix_of(sink) + _COORDINATOR


def task_id(sink: str, batch: int, partition: int, unique: str) -> str:
    """The transactional id of one attempt of a task."""
    return f"{prefix_of(sink)}{batch}.{partition}.{unique}"


def sink_of(transactional_id: str) -> str | None:
    """The sink that a transactional id belongs to; None if the id is not of that form."""
    parts = transactional_id.split(".", 2)
    return parts[1] if len(parts) == 3 and parts[0] + "." == PREFIX and is_sink_name(parts[1]) else None


def is_coordinator(transactional_id: str) -> bool:
    """Whether the id is that of a sink's coordinator, and not of a task."""
    return transactional_id.endswith("." + _COORDINATOR) and transactional_id.count(".") == 2


def partition_of(sink: str, partition_count: int) -> int:
    """The partition of a sink's decisions; it stays the same if partitions are added beyond
    `PARTITION_COUNT`.
    """
    number = int.from_bytes(hashlib.sha256(sink.encode()).digest()[:4], "big")
    return number % PARTITION_COUNT % partition_count


# -- records -------------------------------------------------------------------------------------------------


def key_of(sink: str, about: About) -> bytes:
    """The key of a sink's record."""
    return (sink + about).encode()


def parse_key(key: bytes | None) -> tuple[str, About] | None:
    """The sink and the kind of a record; None for an unknown key."""
    try:
        text = (key or b"").decode("ascii")
    except UnicodeDecodeError:
        return None
    sink, end = text[:_SINK_CHARACTERS], text[_SINK_CHARACTERS:]
    return (sink, About(end)) if is_sink_name(sink) and end in list(About) else None


def encode_decision(decision: Decision) -> bytes:
    """The value of a decision's record; raises DecisionTooLarge."""
    named = _named(decision.sink, decision.transactions)
    value = msgspec.json.encode(
        _Value(
            _VERSION,
            decision.identity,
            decision.query,
            decision.batch,
            decision.unique,
            named,
            decision.ends,
            decision.is_job,
            decision.runs,
            decision.record_count,
        )
    )
    if len(value) > VALUE_BYTES_MAX:
        raise DecisionTooLarge(
            f"the decision about batch {decision.batch} would name {len(named)} transactions in {len(value)} "
            f"bytes, where {VALUE_BYTES_MAX}"
            " fit: write with fewer tasks, as .coalesce(n) makes them, or with delivery=at_least_once"
        )
    return value


def decode_decision(sink: str, value: bytes) -> Decision:
    """The decision of a sink's record; raises DecisionUnreadable."""
    decoded = _decode(value, _Value, f"the decision of sink {sink} in {TOPIC}")
    if sink_name(decoded.identity) != sink:
        raise DecisionUnreadable(
            f"the decision of sink {sink} in {TOPIC} is of another sink: {decoded.identity!r}"
        )
    return Decision(
        decoded.identity,
        decoded.query,
        decoded.batch,
        decoded.unique,
        _identities(sink, decoded.transactions),
        decoded.ends,
        decoded.is_job,
        decoded.runs,
        decoded.record_count,
    )


def encode_condemned(sink: str, transactions: Sequence[ProducerIdentity]) -> bytes:
    """The value of the record that condemns transactions of a sink."""
    return msgspec.json.encode(_Condemned(_VERSION, _named(sink, transactions)))


def decode_condemned(sink: str, value: bytes) -> tuple[ProducerIdentity, ...]:
    """The transactions that a sink's record condemns; raises DecisionUnreadable."""
    return _identities(
        sink, _decode(value, _Condemned, f"what is condemned of sink {sink} in {TOPIC}").transactions
    )


def _decode(value: bytes, kind: type[_T], what: str) -> _T:
    """Decode a value if its version is supported."""
    try:
        decoded = msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise DecisionUnreadable(f"{what} cannot be read: {error}") from None
    if decoded.version != _VERSION:
        raise DecisionUnreadable(
            f"{what} has version {decoded.version}, where {_VERSION} is known: update sparklog"
        )
    return decoded


def _named(sink: str, transactions: Sequence[ProducerIdentity]) -> list[tuple[str, int, int]]:
    prefix = prefix_of(sink)
    return [
        (one.transactional_id.removeprefix(prefix), one.producer_id, one.producer_epoch)
        for one in transactions
    ]


def _identities(sink: str, named: Sequence[tuple[str, int, int]]) -> tuple[ProducerIdentity, ...]:
    prefix = prefix_of(sink)
    return tuple(
        ProducerIdentity(prefix + end, ProducerId(number), ProducerEpoch(epoch))
        for end, number, epoch in named
    )


def is_readable(value: bytes) -> bool:
    """Whether the version of a decision's record is supported."""
    return value.startswith(b'{"version":%d,' % _VERSION)


def names(value: bytes, identity: ProducerIdentity) -> bool:
    """Whether the value of a sink's decision names a transaction; found without decoding all of it, which
    takes a broker too long.

    JSON escapes quotation marks inside a text, so the quoted id can only be among the transactions.
    """
    sink = sink_of(identity.transactional_id)
    if sink is None or not is_readable(value):
        return False
    end = identity.transactional_id.removeprefix(prefix_of(sink))
    return msgspec.json.encode((end, identity.producer_id, identity.producer_epoch)) in value
