"""One turn of sending: requests of the outbound machine go into the network, replies go back into the
machine.
"""

from typing import Final, Protocol

from sparklog.client.cluster import NO_NODE, Cluster
from sparklog.client.logs import Reports
from sparklog.client.membership.member import Errand
from sparklog.client.producer.outbound import Outbound
from sparklog.client.producer.outbound_batch import Done, Shipment
from sparklog.client.producer.transaction import Transaction
from sparklog.client.transport.connection import Answer, UnsupportedByBroker
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.model import Micros, NodeId
from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message

_PRODUCER_ID: Final = object()


class Exchange(Protocol):
    """The network for sending (`network.Network`)."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def reports(self) -> Reports: ...

    @property
    def trouble(self) -> SparklogError | None:
        """The last error of a connection, if no connection is established."""

    def now(self) -> Micros: ...

    def anyone(self) -> NodeId: ...

    def is_ready(self, node: NodeId) -> bool: ...

    def send(
        self,
        node: NodeId,
        message: Message,
        token: object,
        *,
        timeout_us: int | None = None,
        version_max: int | None = None,
        expects_reply: bool = True,
    ) -> None: ...

    def poll(self, deadline: Micros) -> list[Answer]: ...


def deliver(network: Exchange, outbound: Outbound, deadline: Micros) -> list[Done]:
    """Send batches, wait for an event until `deadline`, and return the batches that are finished."""
    now = network.now()
    transaction = outbound.transaction
    done = outbound.expire(now, lambda: network.trouble)
    done += _ask_producer_id(network, outbound, now)
    done += ship(network, outbound, now)
    ended = 0 if transaction is None else transaction.ended
    if transaction is not None:
        _run_errands(network, transaction, now)
    if done or (transaction is not None and transaction.ended != ended):
        deadline = now
    wake = outbound.deadline(now)
    for answer in network.poll(deadline if wake is None else min(deadline, wake)):
        now = network.now()
        if answer.token is _PRODUCER_ID:
            if isinstance(answer.message, InitProducerIdResponse):
                done += outbound.producer_id_replied(answer.message, now)
            else:
                outbound.producer_id_failed(now)
        elif isinstance(answer.token, Errand) and transaction is not None:
            if answer.message is not None:
                transaction.replied(answer.token, answer.message, now)
            else:
                assert answer.error is not None
                transaction.failed(answer.token, answer.error, now)
        elif isinstance(answer.token, Shipment):
            if isinstance(answer.message, ProduceResponse):
                done += outbound.replied(answer.token, answer.message, now)
            else:
                assert answer.error is not None
                done += outbound.failed(answer.token, answer.error, now)
    while outbound.retried:
        network.reports.retried(*outbound.retried.popleft(), now)
    # The replies have made room in flight: fill it now, because the next call may come late.
    done += ship(network, outbound, network.now())
    if transaction is not None:
        _run_errands(network, transaction, network.now())
    return done


def _run_errands(network: Exchange, transaction: Transaction, now: Micros) -> None:
    def is_ready(node: NodeId | None) -> bool:
        if node is None:
            return network.anyone() != NO_NODE
        if node not in network.cluster.brokers:
            network.cluster.refresh_soon()
        return network.is_ready(node)

    for errand in transaction.errands(now, is_ready):
        node = network.anyone() if errand.node is None else errand.node
        try:
            network.send(
                node, errand.request, errand, timeout_us=errand.timeout_us, version_max=errand.version_max
            )
        except UnsupportedByBroker as error:
            transaction.failed(errand, error, now)
        except ValueError as error:
            # The newest version that the broker supports cannot carry the request.
            transaction.failed(
                errand, BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"the broker is too old: {error}"), now
            )


def _ask_producer_id(network: Exchange, outbound: Outbound, now: Micros) -> list[Done]:
    if not outbound.wants_producer_id(now):
        return []
    node = network.anyone()
    if node != NO_NODE:
        try:
            network.send(node, outbound.producer_id_request(), _PRODUCER_ID)
        except UnsupportedByBroker as error:
            return outbound.give_up(error)
    return []


def ship(network: Exchange, outbound: Outbound, now: Micros) -> list[Done]:
    """Send waiting batches for which there is room; returns the batches that this alone finishes."""
    done: list[Done] = []
    while shipments := outbound.requests(now, network.is_ready):
        for shipment in shipments:
            expects_reply = shipment.request.acks != 0
            try:
                network.send(
                    shipment.node,
                    shipment.request,
                    shipment,
                    timeout_us=max(0, shipment.deadline - now),
                    version_max=shipment.version_max,
                    expects_reply=expects_reply,
                )
            except UnsupportedByBroker as error:
                done += outbound.failed(shipment, error, now)
                continue
            if not expects_reply:
                done += outbound.sent_without_reply(shipment)
    return done
