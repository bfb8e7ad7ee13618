"""The table from API key to handler and request: what is in it is served and advertised, and nothing else."""

from collections.abc import Callable
from typing import Any

from sparklog.model import Instant
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.messages.create_topics import CreateTopicsRequest
from sparklog.wire.messages.delete_records import DeleteRecordsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.messages.describe_configs import DescribeConfigsRequest
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.context import Context
from sparklog_server.broker.handlers.api_versions import api_versions
from sparklog_server.broker.handlers.configs import describe_configs
from sparklog_server.broker.handlers.coordinators import find_coordinator
from sparklog_server.broker.handlers.delete_records import delete_records
from sparklog_server.broker.handlers.epochs import offset_for_leader_epoch
from sparklog_server.broker.handlers.fetch import fetch
from sparklog_server.broker.handlers.metadata import describe_cluster, metadata
from sparklog_server.broker.handlers.offsets import list_offsets
from sparklog_server.broker.handlers.produce import produce
from sparklog_server.broker.handlers.producers import init_producer_id
from sparklog_server.broker.handlers.topics import create_partitions, create_topics, delete_topics
from sparklog_server.broker.session import Call, Parked

# Any: each handler takes the request class of its own API, which the table cannot say.
Handler = Callable[[Context, Call, Any, Instant], Message | Parked]

HANDLERS: dict[int, tuple[Handler, type[Message]]] = {
    0: (produce, ProduceRequest),
    1: (fetch, FetchRequest),
    2: (list_offsets, ListOffsetsRequest),
    3: (metadata, MetadataRequest),
    10: (find_coordinator, FindCoordinatorRequest),
    18: (api_versions, ApiVersionsRequest),
    19: (create_topics, CreateTopicsRequest),
    20: (delete_topics, DeleteTopicsRequest),
    21: (delete_records, DeleteRecordsRequest),
    22: (init_producer_id, InitProducerIdRequest),
    23: (offset_for_leader_epoch, OffsetForLeaderEpochRequest),
    32: (describe_configs, DescribeConfigsRequest),
    37: (create_partitions, CreatePartitionsRequest),
    60: (describe_cluster, DescribeClusterRequest),
}
SERVED = tuple(HANDLERS)
