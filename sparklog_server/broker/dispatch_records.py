"""The handlers of producers and consumers, which the broker imports when a client first sends one of them."""

from sparklog.wire.messages.create_topics import CreateTopicsRequest
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.messages.produce import ProduceRequest
from sparklog_server.broker.context import Handlers
from sparklog_server.broker.handlers.coordinators import find_coordinator
from sparklog_server.broker.handlers.fetch import fetch
from sparklog_server.broker.handlers.offsets import list_offsets
from sparklog_server.broker.handlers.produce import produce
from sparklog_server.broker.handlers.producers import init_producer_id
from sparklog_server.broker.handlers.topics import create_topics

RECORDS: Handlers = {
    0: (produce, ProduceRequest),
    1: (fetch, FetchRequest),
    2: (list_offsets, ListOffsetsRequest),
    10: (find_coordinator, FindCoordinatorRequest),
    19: (create_topics, CreateTopicsRequest),
    22: (init_producer_id, InitProducerIdRequest),
}
