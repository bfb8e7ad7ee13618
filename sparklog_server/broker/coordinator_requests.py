"""Requests that a coordinator's shards answer: the tokens by which an answer finds its way back, and what
is said when there is none.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from sparklog.wire.messages.create_topics import CreateTopicsResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.context import BROKER_PRINCIPAL, Context, CoordinatorTopic, ProducerIdBlock
from sparklog_server.broker.coordinator_shards import CoordinatorShards
from sparklog_server.broker.session import FLOWING, Call, Parked
from sparklog_server.broker.sliced_requests import SLICE, RequestSlice
from sparklog_server.coordinator.command import Command

_PART_BYTES: Final = 512
"""What one part of an answer that is gathered takes in memory, about."""
_NONE: Final = ErrorCode.NONE  # to name a member of an enum takes as long as two calls

Refusal = Callable[[ErrorCode], Message]
"""Makes the answer that tells of an error."""


class Token(Protocol):
    """What goes to a shard with a command, and comes back with its reply."""

    @property
    def call(self) -> Call | None:
        """Whose request; None for what the broker itself asked, which is told but never answers."""

    def answered(self, reply: Message) -> Message | None:
        """The shard's reply is here: the answer to the client, or None while more is to come."""

    def refused(self, code: ErrorCode) -> Message | None:
        """There will be no reply, and why."""


class ShardRequest(msgspec.Struct, eq=False):
    """A request that one shard answers whole; `finish` may add to its reply what the handler knew before."""

    shards: CoordinatorShards
    call: Call
    key: str
    refusal: Refusal
    finish: Callable[[Message], Message] | None = None

    def answered(self, reply: Message) -> Message:
        return reply if self.finish is None else self.finish(reply)

    def refused(self, code: ErrorCode) -> Message:
        return self.answered(self.refusal(code))

    def expired(self, now: Instant) -> Message:
        return self.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def abandoned(self) -> None:
        self.shards.abandoned(self.key, self)


class GatheredRequest:
    """A request of which several shards answer a part each; the parts keep the order in which they were
    asked for.
    """

    __slots__ = ("_combine", "_missing", "_parts", "call")

    def __init__(self, call: Call, count: int, combine: Callable[[list[Message]], Message | None]) -> None:
        self.call = call
        self._parts: list[Message | None] = [None] * count
        self._missing = count
        self._combine = combine

    def put(self, index: int, part: Message) -> Message | None:
        """The part at `index` is here; the whole when none is missing."""
        self._parts[index] = part
        self._missing -= 1
        return None if self._missing else self._combine([one for one in self._parts if one is not None])

    def expired(self, now: Instant) -> Message | None:
        return self._combine([one for one in self._parts if one is not None])

    def abandoned(self) -> None:
        """Each shard's reply comes at once, or when what it rests on is committed, and is dropped then."""


class Part:
    """One shard's part of a gathered request."""

    __slots__ = ("_index", "_refusal", "_whole", "call")

    def __init__(self, whole: GatheredRequest, index: int, refusal: Refusal) -> None:
        self.call = whole.call
        self._whole = whole
        self._index = index
        self._refusal = refusal

    def answered(self, reply: Message) -> Message | None:
        return self._whole.put(self._index, reply)

    def refused(self, code: ErrorCode) -> Message | None:
        return self._whole.put(self._index, self._refusal(code))


class SlicePart:
    """One shard's part of a slice."""

    __slots__ = ("_index", "_refusal", "_slice", "call")

    def __init__(self, whole: RequestSlice, index: int, refusal: Refusal) -> None:
        self.call = whole.call
        self._slice = whole
        self._index = index
        self._refusal = refusal

    def answered(self, reply: Message) -> None:
        self._slice.put(self._index, reply)

    def refused(self, code: ErrorCode) -> None:
        self._slice.put(self._index, self._refusal(code))


class ToShard(NamedTuple):
    """A part of a sliced request that the shard answers."""

    shards: CoordinatorShards
    shard: int | None
    request: Message
    refusal: Refusal

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        part = SlicePart(whole, index, self.refusal)
        code = self.shards.send_to_shard(self.shard, command_of(whole.call, self.request), part, now)
        if code is not _NONE:
            part.refused(code)


class Known(NamedTuple):
    """A part of a sliced request that nobody need be asked for."""

    part: Message

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        whole.put(index, self.part)


def command_of(call: Call, request: Message, proof: object = None) -> Command:
    """A request as its shard gets it."""
    return Command(
        request,
        call.version,
        call.client_id or "",
        _host_of(call.session.peer_address),
        call.session.principal,
        proof,
    )


@lru_cache(maxsize=4096)
def _host_of(peer_address: str) -> str:
    """The host of a peer, as Kafka writes it."""
    return "/" + peer_address.rpartition(":")[0].strip("[]")


def ask(
    context: Context,
    call: Call,
    group_id: str,
    request: Message,
    refusal: Refusal,
    now: Instant,
    finish: Callable[[Message], Message] | None = None,
) -> Message | Parked:
    """Have the shard of a group answer."""
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
    """Have the shard of a key answer; `proof` is for what it writes in a transaction."""
    token = ShardRequest(shards, call, key, refusal, finish)
    call.waiting = token
    code = shards.send(key, command_of(call, request, proof), token, now)
    if code is _NONE:
        return FLOWING
    call.waiting = None
    return token.refused(code)


def gather(
    context: Context,
    call: Call,
    asked: list[tuple[int | None, Message, Refusal]],
    combine: Callable[[list[Message]], Message],
    now: Instant,
    shards: CoordinatorShards | None = None,
) -> Message | Parked:
    """Have several shards answer, each its (shard, request, refusal), a key's shard being what
    `CoordinatorShards.shard_of` says; those of groups unless `shards` are given. What asks more than a
    slice is asked over several turns."""
    shards = context.groups if shards is None else shards
    if len(asked) > SLICE:
        parts: list[Message] = []
        asks = (ToShard(shards, *one) for one in asked)
        return context.slices.add(
            call, len(asked), asks, parts.extend, lambda: combine(parts), lambda: len(parts) * _PART_BYTES
        )
    return gather_at_once(shards, call, asked, combine, now)


def gather_at_once(
    shards: CoordinatorShards,
    call: Call,
    asked: list[tuple[int | None, Message, Refusal]],
    combine: Callable[[list[Message]], Message | None],
    now: Instant,
) -> Message | Parked:
    """As `gather`, within this turn, however many are asked; it is not yet answered if `combine` makes no
    answer.
    """
    whole = GatheredRequest(call, len(asked), combine)
    call.waiting = whole
    answer: Message | None = combine([]) if not asked else None
    for position, (shard, request, refusal) in enumerate(asked):
        part = Part(whole, position, refusal)
        code = shards.send_to_shard(shard, command_of(call, request), part, now)
        if code is not ErrorCode.NONE:
            answer = part.refused(code)
    if answer is None:
        return Parked.FLOWING
    call.waiting = None
    return answer


def settle(context: Context, now: Instant) -> list[tuple[Call, Message]]:
    """Take up what this node leads now, append what the turn decided; who is answered by that, and what."""
    partitions, transactions = context.partitions, context.transactions
    led, partitions.led = partitions.led, []
    given: list[tuple[Call, Message]] = []
    for shards in context.coordinators:
        for partition in led:
            shards.led(partition, context.woken, now)
        answers, refused, jobs = shards.take(now)
        context.effects.extend(jobs)
        if shards.awaited and shards.is_settled:
            context.woken.update(dict.fromkeys(shards.take_awaited()))
        if shards is transactions.shards and (answers or refused):
            answers, refused = transactions.told(answers, refused, now)
        for answer in answers:
            token = cast(Token, answer.token)
            if _is_awaited(token.call) and (reply := token.answered(answer.reply)) is not None:
                given.append((cast(Call, token.call), reply))
        for refused_token, code in refused:
            token = cast(Token, refused_token)
            if _is_awaited(token.call) and (reply := token.refused(code)) is not None:
                given.append((cast(Call, token.call), reply))
    if transactions.due or transactions.has_more_due:
        transactions.write_due(context.image, now)
    if transactions.wants_producer_ids:
        transactions.wants_producer_ids = False
        ask_for_producer_ids(context, now)
    return given


def ask_for_producer_ids(context: Context, now: Instant) -> None:
    """Have the controller grant the next block, unless it was asked already."""
    ids = context.producer_ids
    if not ids.is_asked:
        ids.is_asked = True
        block = AllocateProducerIdsRequest(
            broker_id=context.settings.node_id, broker_epoch=context.broker_epoch
        )
        context.propose(block, ProducerIdBlock(), BROKER_PRINCIPAL, now)


def _is_awaited(call: Call | None) -> bool:
    return call is None or (call.answer is None and not call.session.is_closing)


def committed(context: Context, token: object, reply: Message) -> bool:
    """What a coordinator asked of the controller is committed; False if the token is somebody else's."""
    match token, reply:
        case ProducerIdBlock(), AllocateProducerIdsResponse():
            ids = context.producer_ids
            if reply.error_code == 0:
                ids.granted(reply.producer_id_start, reply.producer_id_len)
            ids.is_asked = False
            context.woken.update(dict.fromkeys(ids.waiting))
            ids.waiting.clear()
        case CoordinatorTopic(), CreateTopicsResponse():
            token.shards.is_asked = False
            if reply.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                context.woken.update(dict.fromkeys(token.shards.take_awaited()))
        case _:
            return False
    return True
