"""The traffic of the topics on this node: integers that only grow, one set for all partitions of a topic."""


class TopicTraffic:
    """Sizes in bytes. A partition counts as one request for each Produce and Fetch that names it. The bytes
    of reassignments, to and from replicas that they add, are part of those of replication.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "produce_requests",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "records_in",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.records_in = self.bytes_in = self.bytes_out = self.bytes_rejected = 0
        self.produce_requests = self.failed_produce_requests = 0
        self.fetch_requests = self.failed_fetch_requests = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.reassignment_bytes_in = self.reassignment_bytes_out = 0

    def produce_refused(self, rejected_bytes: int = 0) -> None:
        """A batch for the topic was refused; `rejected_bytes` if its content was the reason."""
        self.produce_requests += 1
        self.failed_produce_requests += 1
        self.bytes_rejected += rejected_bytes

    def add(self, other: "TopicTraffic") -> None:
        """Count the traffic of another topic too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class NodeTraffic:
    """Invariant: `topics` has each topic of which this node has a partition, `past` the sums of those that
    left it.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.past = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """The traffic of a topic, which begins with its first partition here."""
        return self.topics.setdefault(topic, TopicTraffic())

    def left(self, topic: str) -> None:
        """This node has no partition of the topic any more."""
        if (traffic := self.topics.pop(topic, None)) is not None:
            self.past.add(traffic)
