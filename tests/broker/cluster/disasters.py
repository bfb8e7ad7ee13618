"""A cluster that loses brokers as a story tells: one controller, and brokers A, B and C with one partition.

    cluster A B [option=value …]   start brokers, and a controller that stays up
    topic B A                      create the partition with these replicas, the preferred leader first
    write m1 m2 [acks=1]           produce a batch a value to the leader, again after an error of a change
    kill A / power A / start A     end the process; cut the power too; start it
    pause A / resume A             as SIGSTOP and SIGCONT do
    elect                          elect a leader uncleanly, as an administrator does
    await leader=A isr=A,B         run until the newest metadata say so; `none` for no leader
    run 1000                       let so many ms pass
    show                           the metadata, and a line a replica: its log as value/epoch
    fetch A offset=1 [epoch=0] [last=0]   fetch as a consumer, with its leader and last fetched epoch
    end A of=0 [epoch=0]           ask for the end offset of an epoch
    latest A [version=7]           ask for the latest offset as a consumer, by a version of ListOffsets

The paths between brokers have no faults here: a broker is cut off by a pause.
"""

from sparklog.errors import ErrorCode, code_of
from sparklog.model import NodeId, Offset, TopicPartition
from sparklog.record.batch import decode_records, iterate_headers
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.partition import Partition
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster
from tests.broker.world import latest, listed
from tests.story import arguments

_NODES = {"A": 2, "B": 3, "C": 4}
_NAMES = {node: name for name, node in _NODES.items()} | {-1: "none"}
_CONTROLLER = NodeId(1)
_UNCLEAN = 1
_READ_BYTES = 1 << 20


class Disaster:
    """Runs the commands of one story, and tells what they give."""

    def __init__(self) -> None:
        self._cluster: Cluster

    def run(self, line: str) -> list[str]:
        """Run a command."""
        (name, *names), given = arguments(line)
        match name:
            case "cluster":
                self._start(names, given)
            case "topic":
                return [f"-> {self._create(names)}"]
            case "write":
                acks = int(given.get("acks", -1))
                codes = [self._cluster.write(value.encode(), acks=acks) for value in names]
                return [f"-> {value} {_told(code)}" for value, code in zip(names, codes, strict=True)]
            case "await":
                self._cluster.run_until(lambda: all(self._is(key, value) for key, value in given.items()))
            case "run":
                self._cluster.run(int(names[0]))
            case "elect":
                return [f"-> {self._elect()}"]
            case "show":
                return self._shown()
            case "fetch":
                return [f"-> {self._fetch(names[0], given)}"]
            case "end":
                return [f"-> {self._end_of_epoch(names[0], given)}"]
            case "latest":
                return [f"-> {self._latest(names[0], int(given.get('version', 7)))}"]
            case _:
                for one in names:
                    self._change(name, one)
        return []

    def _start(self, names: list[str], given: dict[str, str]) -> None:
        seed = int(given.pop("seed", 0))
        settings = {key.replace(".", "_"): value for key, value in given.items()}
        self._cluster = Cluster(seed, count=1 + len(names), voters=1, is_split=True, **settings).start()
        self._cluster.run_until(lambda: self._cluster.is_ready and len(self._image.brokers) == len(names))

    def _change(self, verb: str, name: str) -> None:
        node = self._node(name)
        match verb:
            case "kill":
                node.kill(is_power_cut=False)
            case "power":
                node.kill(is_power_cut=True)
            case "start":
                node.start()
            case "pause":
                node.pause()
            case "resume":
                node.resume()
            case _:
                raise ValueError(f"no such command: {verb}")

    # -- the state

    @property
    def _image(self) -> MetadataImage:
        return self._cluster.nodes[_CONTROLLER].running._quorum.image

    def _node(self, name: str) -> SimulatedNode:
        return self._cluster.nodes[NodeId(_NODES[name])]

    @property
    def _partition(self) -> PartitionImage:
        found = self._image.partition(TopicPartition("t", 0))
        assert isinstance(found, PartitionImage)
        return found

    def _is(self, key: str, value: str) -> bool:
        return (
            value
            == {
                "leader": _NAMES[self._partition.leader],
                "isr": _joined(self._partition.isr),
                "elr": _joined(self._partition.eligible_leader_replicas),
            }[key]
        )

    def _shown(self) -> list[str]:
        partition = self._partition
        elr = f" elr={_joined(elr)}" if (elr := partition.eligible_leader_replicas) else ""
        told = [f"leader={_NAMES[partition.leader]} isr={_joined(partition.isr)}{elr}"]
        for node, replica in self._cluster.replicas().items():
            told.append(f"{_NAMES[node]} log={' '.join(_records(replica))} hw={replica.high_watermark}")
        return told

    # -- requests

    def _ask(self, node: SimulatedNode, request: Message, version: int, reply: type[Message]) -> Message:
        client = node.connect()
        client.send(request, version, reply)
        self._cluster.run_until(lambda: bool(client.replies))
        return client.replies[0]

    def _create(self, names: list[str]) -> str:
        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[_NODES[name] for name in names])
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = self._ask(self._node(names[0]), request, 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        self._cluster.run_until(lambda: self._cluster.leading() == _NODES[names[0]])
        return _told(answer.topics[0].error_code)

    def _elect(self) -> str:
        running = next(n for one, n in self._cluster.nodes.items() if one != _CONTROLLER and n.broker)
        partitions = [TopicPartitions(topic="t", partitions=[0])]
        request = ElectLeadersRequest(election_type=_UNCLEAN, topic_partitions=partitions, timeout_ms=10_000)
        answer = self._ask(running, request, 2, ElectLeadersResponse)
        assert isinstance(answer, ElectLeadersResponse)
        return _told(answer.replica_election_results[0].partition_result[0].error_code)

    def _fetch(self, name: str, given: dict[str, str]) -> str:
        part = FetchPartition(
            partition=0,
            fetch_offset=int(given["offset"]),
            current_leader_epoch=int(given.get("epoch", -1)),
            last_fetched_epoch=int(given.get("last", -1)),
            partition_max_bytes=_READ_BYTES,
        )
        topics = [FetchTopic(topic="t", partitions=[part])]
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)
        answer = self._ask(self._node(name), request, 12, FetchResponse)
        assert isinstance(answer, FetchResponse)
        found = answer.responses[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            return _told(found.error_code)
        if (diverging := found.diverging_epoch) is not None and diverging.epoch >= 0:
            return f"diverging: epoch {diverging.epoch} ended at {diverging.end_offset}"
        records = found.records or b""
        assert isinstance(records, (bytes, bytearray, memoryview))
        return " ".join((record.value or b"").decode() for record in decode_records(records))

    def _end_of_epoch(self, name: str, given: dict[str, str]) -> str:
        part = OffsetForLeaderPartition(
            partition=0, current_leader_epoch=int(given.get("epoch", -1)), leader_epoch=int(given["of"])
        )
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[part])])
        answer = self._ask(self._node(name), request, 4, OffsetForLeaderEpochResponse)
        assert isinstance(answer, OffsetForLeaderEpochResponse)
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            return _told(found.error_code)
        return f"epoch {found.leader_epoch} ended at {found.end_offset}"

    def _latest(self, name: str, version: int) -> str:
        code, offset = listed(self._ask(self._node(name), latest("t"), version, ListOffsetsResponse))
        return _told(code) if code != ErrorCode.NONE else str(offset)


def _records(replica: Partition) -> list[str]:
    """Every record of a log as value/epoch."""
    log, told = replica.log, []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, log.log_end_offset, _READ_BYTES, at_least_one=True)
        assert part is not None
        data = part.read()
        epochs = {header.base_offset: header.leader_epoch for _, header in iterate_headers(data)}
        for record in decode_records(data):
            told.append(f"{(record.value or b'').decode()}/{epochs[record.offset]}")
            offset = Offset(record.offset + 1)
    return told


def _told(code: int) -> str:
    return "no response" if code == -1 else code_of(code).name


def _joined(nodes: tuple[NodeId, ...]) -> str:
    return ",".join(sorted(_NAMES[node] for node in nodes))
