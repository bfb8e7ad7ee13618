"""The brokers, or the controllers, of a cluster, with its id (KIP-700, KIP-919)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    since,
)


class DescribeClusterRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1), essential] = 1
    include_fenced_brokers: Annotated[Bool, since(2), essential] = False


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: NullableStr = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: Str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648
