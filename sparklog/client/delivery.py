"""One turn of sending: what the outbound machine wants goes into the network, what the network answers goes back into the machine."""

from typing import Final

from sparklog.client.cluster import NO_NODE
from sparklog.client.connection import UnsupportedByBroker
from sparklog.client.outbound import Done, Outbound, Shipment
from sparklog.client.transport import Network, now_us
from sparklog.model import Micros
from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.messages.produce import ProduceResponse

_PRODUCER_ID: Final = object()


def deliver(network: Network, outbound: Outbound, deadline: Micros) -> list[Done]:
    """Send, wait until `deadline` at most for something to happen, and give the batches that are finished."""
    now = now_us()
    done = outbound.expire(now)
    done += _ask_producer_id(network, outbound, now)
    done += _ship(network, outbound, now)
    if done:
        deadline = now
    wake = outbound.deadline(now)
    for answer in network.poll(deadline if wake is None else min(deadline, wake)):
        now = now_us()
        if answer.token is _PRODUCER_ID:
            if isinstance(answer.message, InitProducerIdResponse):
                done += outbound.producer_id_replied(answer.message, now)
            else:
                outbound.producer_id_failed(now)
        elif isinstance(answer.token, Shipment):
            if isinstance(answer.message, ProduceResponse):
                done += outbound.replied(answer.token, answer.message, now)
            else:
                assert answer.error is not None
                done += outbound.failed(answer.token, answer.error, now)
    # What was answered made room: fill it now, the caller may not come back soon.
    return done + _ship(network, outbound, now_us())


def _ask_producer_id(network: Network, outbound: Outbound, now: Micros) -> list[Done]:
    if not outbound.wants_producer_id(now):
        return []
    node = network.anyone()
    if node != NO_NODE:
        try:
            network.send(node, outbound.producer_id_request(), _PRODUCER_ID)
        except UnsupportedByBroker as error:
            return outbound.give_up(error)
    return []


def _ship(network: Network, outbound: Outbound, now: Micros) -> list[Done]:
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
