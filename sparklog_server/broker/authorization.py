"""The authorization check that every handler makes before it acts. There is no authentication yet, so every
check allows.
"""

from collections.abc import Callable
from enum import IntEnum


class Operation(IntEnum):
    """The operation, by Kafka's numbers (KIP-11)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    """The type of the resource, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


Allow = Callable[[str, Operation, Resource, str], bool]
"""Whether a principal may perform the operation on the resource of that type and name."""

CLUSTER_NAME = "kafka-cluster"


def allow_all(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
    """The authorizer of a cluster without an authorizer."""
    return True
