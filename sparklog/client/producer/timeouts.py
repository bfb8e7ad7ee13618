"""Why a call of a producer has to wait, and its error when it has waited too long. The error names the cause
first: most often, no broker can be reached.
"""

from typing import Protocol

from sparklog.client.cluster import Cluster
from sparklog.client.failures import BufferExhausted
from sparklog.client.producer.transaction_states import Operation
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, RequestTimeout, SparklogError


class Network(Protocol):
    """What a network knows of its brokers (`network.Network`)."""

    @property
    def cluster(self) -> Cluster: ...

    @property
    def last_error(self) -> SparklogError | None: ...

    @property
    def trouble(self) -> SparklogError | None: ...


def topic_refusal(network: Network, topic: str) -> SparklogError | None:
    """The error of a topic that waiting does not resolve."""
    code = network.cluster.errors.get(topic)
    if code is None or code.is_retriable or topic in network.cluster.topics:
        return None
    return BrokerError(code, f"topic {topic!r}")


def topic_is_late(network: Network, settings: ClientSettings, topic: str) -> RequestTimeout:
    """The partitions of the topic did not become known in time."""
    code = network.cluster.errors.get(topic)
    trouble = network.last_error
    if code is not None:
        why = code.name
    else:
        why = "no broker answers" if trouble is None else f"no broker answers ({trouble})"
    return RequestTimeout(
        f"{why}; no metadata of topic {topic!r} within max_block_ms={settings.max_block_ms}"
    )


def memory_is_late(network: Network, settings: ClientSettings) -> BufferExhausted:
    """Memory for a record did not become free in time."""
    full = f"buffer_memory={settings.buffer_memory} was full for max_block_ms={settings.max_block_ms}"
    trouble = network.trouble
    return BufferExhausted(full if trouble is None else f"{trouble}; {full}")


def delivery_is_late(network: Network) -> RequestTimeout:
    """A record was neither acknowledged nor given up in time."""
    trouble = network.trouble
    why = ""
    if trouble is not None:
        why = f"no broker answers ({trouble}); "
    elif not network.cluster.answers:
        why = "no broker answers; "
    return RequestTimeout(f"{why}the record is neither acknowledged nor given up yet")


def operation_is_late(network: Network, operation: Operation) -> RequestTimeout:
    """An operation of a transaction did not end in time."""
    trouble = network.last_error
    why = "" if trouble is None else f"; last trouble: {trouble}"
    return RequestTimeout(f"{operation.name} was not answered in time{why}: call it again to go on waiting")
