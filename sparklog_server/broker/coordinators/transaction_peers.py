"""Requests of this broker's transactions to other brokers: verification of partitions with the coordinator of
a transactional id, and markers for partitions that other brokers lead.

    verify ─► AddPartitionsToTxn ─► the leader of the id's partition of `__transaction_state`
    mark ───► WriteTxnMarkers ────► the leader of each partition
              └── one request in flight for each broker and kind; the rest gathers for the next one

As `AddPartitionsToTxnManager` and `TransactionMarkerChannelManager` of Kafka. Nothing is repeated here: a
request without a response is told as an error that its owner retries, with the metadata of that moment.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from sparklog.effects import Loss
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, NodeId, TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.links import TRANSACTIONS, Address, Links
from sparklog_server.broker.coordinators.txn_marker import Done, TxnMarker
from sparklog_server.coordinator.command import Sender

_TIMEOUT_US: Final = 30_000_000  # Kafka's default request.timeout.ms
_BATCH_MAX: Final = 500
"""How many transactions go into one request."""

One = TypeVar("One", bound="_Verifying | _Marking")


class _Verifying(msgspec.Struct, frozen=True):
    """One transaction whose partitions are verified."""

    transaction: AddPartitionsToTxnTransaction
    token: Sender

    @property
    def key(self) -> str | int:
        return self.transaction.transactional_id


class _Marking(msgspec.Struct, frozen=True):
    """One marker for some partitions of one broker."""

    marker: TxnMarker
    done: Done

    @property
    def key(self) -> str | int:
        return self.marker.producer_id


class _Gathering(Generic[One]):
    """The requests of one kind to one broker."""

    def __init__(
        self,
        links: Links,
        address: Address,
        request_of: Callable[[Sequence[One]], Message],
        answered: Callable[[Sequence[One], Message | Loss, Instant], None],
    ) -> None:
        self._links = links
        self._address = address
        self._request_of = request_of
        self._answered = answered
        self._waiting: deque[One] = deque()
        self.is_idle = True

    def add(self, one: One, now: Instant) -> None:
        """Send it, or have it wait for the response to the request in flight."""
        self._waiting.append(one)
        if self.is_idle:
            self._send(now)

    def _send(self, now: Instant) -> None:
        """Send what has gathered. A response names its results by the key, so each key goes once."""
        taken: dict[str | int, One] = {}
        left: deque[One] = deque()
        while self._waiting and len(taken) < _BATCH_MAX:
            one = self._waiting.popleft()
            if taken.setdefault(one.key, one) is not one:
                left.append(one)
        self._waiting.extendleft(reversed(left))
        self.is_idle = not taken
        if taken:
            batch = tuple(taken.values())
            self._links.ask(
                self._address,
                TRANSACTIONS,
                self._request_of(batch),
                partial(self._came, batch),
                now,
                timeout_us=_TIMEOUT_US,
            )

    def _came(self, batch: Sequence[One], answer: Message | Loss, now: Instant) -> None:
        self._answered(batch, answer, now)
        self._send(now)


class TransactionPeers:
    """The other brokers, as the transactions of this one use them."""

    def __init__(self, links: Links, address_of: Callable[[NodeId], Address | None]) -> None:
        """`address_of` gives the inter-broker listener of a broker, or None if it cannot be reached."""
        self._links = links
        self._address_of = address_of
        self._verifying: dict[Address, _Gathering[_Verifying]] = {}
        self._marking: dict[Address, _Gathering[_Marking]] = {}

    def verify(
        self, node: NodeId, transaction: AddPartitionsToTxnTransaction, token: Sender, now: Instant
    ) -> ErrorCode:
        """Ask the coordinator on `node`. NONE if `token` will be answered as by a shard of this broker."""
        address = self._address_of(node)
        if address is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        gathering = self._verifying.get(address)
        if gathering is None:
            self._forget_idle()
            gathering = self._verifying[address] = _Gathering(
                self._links, address, _verification_of, _verified
            )
        gathering.add(_Verifying(transaction, token), now)
        return ErrorCode.NONE

    def mark(self, node: NodeId, marker: TxnMarker, done: Done, now: Instant) -> None:
        """Have `node` write a marker to its partitions; `done` is called as by `Markers.write`."""
        address = self._address_of(node)
        if address is None:
            done(_of_all(marker, ErrorCode.NOT_LEADER_OR_FOLLOWER), now)
            return
        gathering = self._marking.get(address)
        if gathering is None:
            self._forget_idle()
            gathering = self._marking[address] = _Gathering(self._links, address, _markers_of, _marked)
        gathering.add(_Marking(marker, done), now)

    def _forget_idle(self) -> None:
        """Brokers come and go with other addresses."""
        self._verifying = {at: one for at, one in self._verifying.items() if not one.is_idle}
        self._marking = {at: one for at, one in self._marking.items() if not one.is_idle}


def _verification_of(batch: Sequence[_Verifying]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[one.transaction for one in batch])


def _verified(batch: Sequence[_Verifying], answer: Message | Loss, now: Instant) -> None:
    if not isinstance(answer, AddPartitionsToTxnResponse) or answer.error_code:
        lost = isinstance(answer, Loss)
        code = ErrorCode.NETWORK_EXCEPTION if lost else code_of(getattr(answer, "error_code", 0))
        for one in batch:
            one.token.refused(code or ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    results = {result.transactional_id: result for result in answer.results_by_transaction}
    for one in batch:
        result = results.get(one.transaction.transactional_id)
        if result is None:
            one.token.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            one.token.answered(AddPartitionsToTxnResponse(results_by_transaction=[result]))


def _markers_of(batch: Sequence[_Marking]) -> WriteTxnMarkersRequest:
    markers = []
    for one in batch:
        marker, topics = one.marker, dict[str, list[int]]()
        for topic, partition in marker.partitions:
            topics.setdefault(topic, []).append(partition)
        markers.append(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)


def _marked(batch: Sequence[_Marking], answer: Message | Loss, now: Instant) -> None:
    codes_by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
    if isinstance(answer, WriteTxnMarkersResponse):
        for result in answer.markers:
            codes_by_producer[result.producer_id] = {
                TopicPartition(topic.name, part.partition_index): code_of(part.error_code)
                for topic in result.topics
                for part in topic.partitions
            }
    for one in batch:
        codes = codes_by_producer.get(one.marker.producer_id, {})
        # A partition that the response does not name is tried again, as one whose leader has moved.
        outcomes = _of_all(one.marker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        one.done({at: codes.get(at, code) for at, code in outcomes.items()}, now)


def _of_all(marker: TxnMarker, code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(marker.partitions, code)
