"""Requests that coordinator shards answer: tokens that map an answer to its request, and the errors for
requests without an answer.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.broker_lifecycle import BrokerEpoch
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.proposals import Proposing
from sparklog_server.broker.session import FLOWING, Call, InSteps, Parked, Wakeable, is_in_steps
from sparklog_server.broker.sliced_requests import SLICE, RequestSlice, SlicedRequests
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.txn.events import MarkersDue, VerdictDue
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.replica_manager import ReplicaManager

_PART_BYTES: Final = 512
"""The approximate memory of one part of a gathered answer."""
_NONE: Final = ErrorCode.NONE  # read through the class it costs two calls


class AskingGroups(Protocol):
    """What requests to several shards use of the broker."""

    groups: CoordinatorShards
    slices: SlicedRequests


class ProducerIdsPort(Proposing, Protocol):
    """What requests for producer ids use of the broker."""

    transactions: TransactionCoordinator
    broker_epoch: BrokerEpoch
    woken: dict[Wakeable, None]

    @property
    def settings(self) -> BrokerSettings: ...


class SettlingPort(ProducerIdsPort, Protocol):
    """What the end of a turn uses of the broker."""

    partitions: ReplicaManager
    coordinators: tuple[CoordinatorShards, CoordinatorShards]

    @property
    def image(self) -> MetadataImage: ...


Refusal = Callable[[ErrorCode], Message]
"""Makes the response for an error code."""


class ShardRequest(msgspec.Struct, eq=False):
    """A request that one shard answers; `finish` may complete its reply with the parts that the handler
    answered.
    """

    shards: CoordinatorShards
    call: Call
    key: str
    refusal: Refusal
    finish: Callable[[Message], Message] | None = None

    def answered(self, reply: Message) -> None:
        if _is_awaited(self.call):
            self.shards.replies.append((self.call, reply if self.finish is None else self.finish(reply)))

    def refused(self, code: ErrorCode) -> None:
        if _is_awaited(self.call):
            self.shards.replies.append((self.call, self.refusal_for(code)))

    def refusal_for(self, code: ErrorCode) -> Message:
        """The response with an error code."""
        refusal = self.refusal(code)
        return refusal if self.finish is None else self.finish(refusal)

    def expired(self, now: Instant) -> Message:
        return self.refusal_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def abandoned(self) -> None:
        self.shards.abandoned(self.key, self)


class GatheredRequest:
    """A request of which several shards answer one part each; the parts keep the order of the request."""

    __slots__ = ("_combine", "_missing", "_parts", "call")

    def __init__(self, call: Call, count: int, combine: Callable[[list[Message]], Message | None]) -> None:
        self.call = call
        self._parts: list[Message | None] = [None] * count
        self._missing = count
        self._combine = combine

    def put(self, index: int, part: Message) -> Message | None:
        """Set the part at `index`; returns the response when no part is missing."""
        self._parts[index] = part
        self._missing -= 1
        return None if self._missing else self._combine([one for one in self._parts if one is not None])

    def expired(self, now: Instant) -> Message | None:
        return self._combine([one for one in self._parts if one is not None])

    def abandoned(self) -> None:
        """Each shard answers at once, or when its records are committed; the answer is then dropped."""


class Part:
    """One shard's part of a gathered request."""

    __slots__ = ("_index", "_refusal", "_shards", "_whole")

    def __init__(
        self, shards: CoordinatorShards, whole: GatheredRequest, index: int, refusal: Refusal
    ) -> None:
        self._shards = shards
        self._whole = whole
        self._index = index
        self._refusal = refusal

    def answered(self, reply: Message) -> None:
        call = self._whole.call
        if _is_awaited(call) and (answer := self._whole.put(self._index, reply)) is not None:
            self._shards.replies.append((call, answer))

    def refused(self, code: ErrorCode) -> None:
        self.answered(self._refusal(code))


class SlicePart:
    """One shard's part of a slice."""

    __slots__ = ("_index", "_refusal", "_slice")

    def __init__(self, whole: RequestSlice, index: int, refusal: Refusal) -> None:
        self._slice = whole
        self._index = index
        self._refusal = refusal

    def answered(self, reply: Message) -> None:
        if _is_awaited(self._slice.call):
            self._slice.put(self._index, reply)

    def refused(self, code: ErrorCode) -> None:
        self.answered(self._refusal(code))


class ToShard(msgspec.Struct, frozen=True):
    """A part of a sliced request for a shard to answer."""

    shards: CoordinatorShards
    shard: int | None
    request: Message
    refusal: Refusal

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        part = SlicePart(whole, index, self.refusal)
        code = self.shards.send_to_shard(self.shard, command_of(whole.call, self.request), part, now)
        if code is not _NONE:
            part.refused(code)


class Known(msgspec.Struct, frozen=True):
    """A part of a sliced request with an answer that is known already."""

    part: Message

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        whole.put(index, self.part)


def command_of(call: Call, request: Message, proof: object = None) -> Command:
    """The command of a request, for its shard."""
    return Command(
        request,
        call.version,
        call.client_id or "",
        f"/{call.session.host}",
        call.session.principal,
        proof,
        call.session.groups,
    )


def ask(
    context: AskingGroups,
    call: Call,
    group_id: str,
    request: Message,
    refusal: Refusal,
    now: Instant,
    finish: Callable[[Message], Message] | None = None,
) -> Message | Parked:
    """Send a request to the shard of a group."""
    return ask_shard(context.groups, call, group_id, request, refusal, now, finish)


def ask_shard(
    shards: CoordinatorShards,
    call: Call,
    key: str,
    request: Message,
    refusal: Refusal,
    now: Instant,
    finish: Callable[[Message], Message] | None = None,
    *,
    proof: object = None,
) -> Message | Parked:
    """Send a request to the shard of a key; `proof` verifies records that the shard writes in a
    transaction.
    """
    token = ShardRequest(shards, call, key, refusal, finish)
    call.waiting = token
    code = shards.send(key, command_of(call, request, proof), token, now)
    if code is _NONE:
        return FLOWING
    call.waiting = None
    return token.refusal_for(code)


def gather(
    context: AskingGroups,
    call: Call,
    asked: list[tuple[int | None, Message, Refusal]],
    combine: Callable[[list[Message]], Message | InSteps[Message]],
    now: Instant,
    shards: CoordinatorShards | None = None,
) -> Message | Parked:
    """Send one (shard, request, refusal) each to several shards and gather their answers;
    `CoordinatorShards.shard_of` returns the shard of a key. Without `shards`, these are the shards of groups.
    A request with more parts than a slice is answered over several turns.
    """
    shards = context.groups if shards is None else shards
    if len(asked) > SLICE:
        parts: list[Message] = []
        asks = (ToShard(shards, *one) for one in asked)
        return context.slices.add(
            call, len(asked), asks, parts.extend, lambda: combine(parts), lambda: len(parts) * _PART_BYTES
        )

    def combined(parts: list[Message]) -> Message | None:
        answer = combine(parts)
        return context.slices.answered(call, answer, now) if is_in_steps(answer) else answer

    return gather_at_once(shards, call, asked, combined, now)


def gather_at_once(
    shards: CoordinatorShards,
    call: Call,
    asked: list[tuple[int | None, Message, Refusal]],
    combine: Callable[[list[Message]], Message | None],
    now: Instant,
) -> Message | Parked:
    """As `gather`, within this turn, for any number of parts; the request stays unanswered if `combine`
    returns None.
    """
    whole = GatheredRequest(call, len(asked), combine)
    call.waiting = whole
    answer: Message | None = combine([]) if not asked else None
    for position, (shard, request, refusal) in enumerate(asked):
        part = Part(shards, whole, position, refusal)
        code = shards.send_to_shard(shard, command_of(call, request), part, now)
        if code is not ErrorCode.NONE:
            answer = whole.put(position, refusal(code))
    if answer is None:
        return Parked.FLOWING
    call.waiting = None
    return answer


def settle(context: SettlingPort, now: Instant) -> list[tuple[Call, Message]]:
    """Start the shards of newly led partitions and append the records of this turn; returns the calls that
    can be answered, with their answers.
    """
    partitions, transactions = context.partitions, context.transactions
    led, partitions.led = partitions.led, []
    given: list[tuple[Call, Message]] = []
    for shards in context.coordinators:
        for partition in led:
            shards.led(partition, context.woken, now)
        answers, refused = shards.take(now)
        if shards.awaited and shards.is_settled:
            context.woken.update(dict.fromkeys(shards.take_awaited()))
        for answer in answers:
            match answer.token:
                case None:
                    pass
                case MarkersDue() | VerdictDue() as due:
                    transactions.requested(due)
                case sender:
                    sender.answered(answer.reply)
        for token, code in refused:
            # A shard that is loaded anew repeats its requests to the broker.
            if token is not None and not isinstance(token, (MarkersDue, VerdictDue)):
                token.refused(code)
        given += shards.replies
        shards.replies.clear()
    if transactions.due or transactions.has_more_due:
        transactions.write_due(context.image, now)
    if transactions.wants_producer_ids:
        transactions.wants_producer_ids = False
        ask_for_producer_ids(context, now)
    return given


def ask_for_producer_ids(context: ProducerIdsPort, now: Instant) -> None:
    """Request the next block of producer ids from the controller, unless a request is in flight."""
    ids = context.transactions.producer_ids
    if not ids.is_asked:
        ids.is_asked = True
        block = AllocateProducerIdsRequest(
            broker_id=context.settings.node_id, broker_epoch=context.broker_epoch.value
        )
        context.propose(block, AllocateProducerIdsResponse, partial(_granted, context), now)


def _granted(context: ProducerIdsPort, reply: AllocateProducerIdsResponse, now: Instant) -> None:
    ids = context.transactions.producer_ids
    if reply.error_code == 0:
        ids.granted(reply.producer_id_start, reply.producer_id_len)
    ids.is_asked = False
    context.woken.update(dict.fromkeys(ids.waiting))
    ids.waiting.clear()


def _is_awaited(call: Call) -> bool:
    return call.answer is None and not call.session.is_closing
