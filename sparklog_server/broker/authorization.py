"""Who may do what: the one question every handler asks before it acts. Nothing authenticates yet, so the
answer is yes.
"""

from collections.abc import Callable
from enum import IntEnum


class Operation(IntEnum):
    """What is to be done, by Kafka's numbers (KIP-11)."""

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
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    """What it is done to, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


Allow = Callable[[str, Operation, Resource, str], bool]
"""Whether a principal may do this to the resource of that kind and name."""

CLUSTER_NAME = "kafka-cluster"


def allow_all(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
    """The authorizer of a cluster that has none."""
    return True
