"""Wait until the partitions of a topic are known."""

from sparklog.client.clock import now_us
from sparklog.client.connection import Answer
from sparklog.client.failures import UnknownTopic
from sparklog.client.transport import Network
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import Micros


def wait_for_topic(network: Network, topic: str, deadline: Micros, *, is_patient: bool = True) -> None:
    """Return when the partitions of a topic are known; raises UnknownTopic, BrokerError, or
    ConnectionFailed or RequestTimeout at `deadline`.

    A patient caller, whose topic may be created soon, repeats the request for an unknown topic.
    """
    network.cluster.want([topic])
    others: list[Answer] = []
    try:
        while topic not in network.cluster.topics:
            network.raise_refusal()
            is_late = now_us() >= deadline
            code = network.cluster.errors.get(topic)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (is_late or not is_patient):
                raise UnknownTopic(f"there is no topic {topic!r}")
            if code is not None and (is_late or not code.is_retriable):
                raise BrokerError(code, f"topic {topic!r}")
            if is_late:
                raise network.not_in_time(f"metadata of topic {topic!r}")
            others += network.poll(deadline)
    finally:
        network.put_back(others)
