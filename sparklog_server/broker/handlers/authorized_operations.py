"""The operations that a caller may perform, as Metadata and the Describe replies list them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import Call

if TYPE_CHECKING:
    from sparklog_server.broker.ports import Authorizing


_OF_TOPICS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_OF_CLUSTERS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def operations_on_topic(context: "Authorizing", call: Call, topic: str) -> int:
    """The operations that the caller may perform on a topic, as bits by Kafka's numbers (KIP-430)."""
    return _bits(operation for operation in _OF_TOPICS if context.may(call, operation, Resource.TOPIC, topic))


def operations_on_cluster(context: "Authorizing", call: Call) -> int:
    """The operations that the caller may perform on the cluster, as bits by Kafka's numbers (KIP-430)."""
    return _bits(
        operation
        for operation in _OF_CLUSTERS
        if context.may(call, operation, Resource.CLUSTER, CLUSTER_NAME)
    )


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)
