"""Brokers of one cluster start, forward, leave, and are deposed: whole nodes in the simulator."""

from base64 import urlsafe_b64encode
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import build_batch
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.features import METADATA_LEVEL, METADATA_VERSION
from sparklog_server.metadata.records import FeatureLevelRecord, batch_of
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk
from tests.broker.clusters import CLUSTER_ID, Cluster
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, produce


def formed(**given: str) -> tuple[Cluster, SimulatedNode]:
    cluster = Cluster(**given).start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    cluster.run_until(lambda: all(len(quorum.image.brokers) == 3 for quorum in cluster.quorums))
    assert cluster.leader is not None
    return cluster, cluster.leader


def creating(node: SimulatedNode, name: str) -> SimulatedConnection:
    """A client whose CreateTopics is on its way."""
    client = node.connect()
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    client.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, CreateTopicsResponse)
    return client


def broker(
    cluster: Cluster, number: int, host: str, *, directory: bytes = b"", cluster_id: str = CLUSTER_ID
) -> SimulatedNode:
    """One more node, which is no controller; two of them with one `directory` have copies of it."""
    settings = {
        "node.id": str(number),
        "log.dirs": "/data",
        "listeners": f"PLAINTEXT://{host}:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{one}@127.0.0.{one}:9093" for one in cluster.nodes),
        "process.roles": "broker",
        "initial.broker.registration.timeout.ms": "15000",
    }
    disk = SimulatedDisk()
    disk.make_directory("/data")
    directory_id = urlsafe_b64encode(directory.ljust(16, b"d")).rstrip(b"=").decode()
    lines = ("version=1", f"cluster.id={cluster_id}", f"node.id={number}", f"directory.id={directory_id}", "")
    disk.write("/data/meta.properties", "\n".join(lines).encode())
    given = BrokerSettings.of(settings)
    return SimulatedNode(cluster.clock, Random(host), disk, given, network=cluster.network)


def fenced(cluster: Cluster, number: int) -> bool:
    """Whether the other nodes see that broker as fenced."""
    return all(
        node.broker._quorum.image.brokers[NodeId(number)].is_fenced
        for other, node in cluster.nodes.items()
        if other != number and node.broker is not None
    )


@pytest.mark.parametrize("delay_us", [0, 150, 300, 600, 1_200, 2_500, 5_000])
def test_a_creation_during_which_the_leader_is_killed_gets_one_answer(delay_us: int) -> None:
    cluster, leader = formed()
    clients = [creating(other, f"t{index}") for index, other in enumerate(cluster.others(leader))]
    cluster.clock.run(until_us=cluster.clock.now.mono_us + delay_us)
    leader.kill()
    cluster.run_until(lambda: all(client.replies for client in clients), 3_000)
    cluster.run(5_000)
    for client in clients:
        [answer] = client.replies
        assert isinstance(answer, CreateTopicsResponse)
        # Decided twice if the first decision was committed and its answer lost, as in Kafka.
        assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert all({"t0", "t1"} <= set(quorum.image.topics_by_name) for quorum in cluster.quorums)


def test_a_creation_waits_for_the_new_leader_when_the_old_one_hangs() -> None:
    cluster, leader = formed()
    leader.pause()
    client = creating(cluster.others(leader)[0], "t")
    assert cluster.run_until(lambda: bool(client.replies), 8_000) < 8_000
    [answer] = client.replies
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    leader.resume()
    cluster.run_until(lambda: len({quorum.image.offset for quorum in cluster.quorums}) == 1)


def test_a_creation_on_a_node_without_a_majority_is_timed_out_and_not_refused() -> None:
    cluster, leader = formed()
    for other in cluster.others(leader):
        other.kill()
    client = creating(leader, "t")
    cluster.run_until(lambda: bool(client.replies), 40_000)
    [answer] = client.replies
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_each_controller_is_registered_with_its_listener() -> None:
    cluster, _ = formed()
    cluster.run_until(lambda: all(len(quorum.image.controllers) == 3 for quorum in cluster.quorums))
    (image, *_) = (quorum.image for quorum in cluster.quorums)
    assert [(node, one.endpoints[0].port) for node, one in sorted(image.controllers.items())] == [
        (1, 9093),
        (2, 9093),
        (3, 9093),
    ]


def test_a_broker_that_stops_is_fenced_before_it_ends() -> None:
    cluster, leader = formed()
    number, leaving = next((number, node) for number, node in cluster.nodes.items() if node is not leader)
    broker = leaving.running
    leaving.begin_stop()
    assert not broker.is_stopping
    assert cluster.run_until(lambda: broker.is_stopped, 1_000) < 200, "no broker waits for its heartbeat"
    assert fenced(cluster, number)
    assert any("controlled-shutdown-ends" in line for line in leaving.trace)


def test_nodes_stop_one_after_the_other_and_start_again() -> None:
    cluster, _ = formed()
    cluster.create(cluster.nodes[NodeId(1)], "t")
    for node in cluster.nodes.values():
        broker = node.running
        node.begin_stop()
        cluster.run_until(lambda broker=broker: broker.is_stopped, 10_000)
        node._end()
    cluster.start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    assert all("t" in quorum.image.topics_by_name for quorum in cluster.quorums)


def test_a_leader_epoch_that_has_no_record_yet_is_not_told_as_damage() -> None:
    cluster, leader = formed()
    cluster.create(leader, "t")
    cluster.run_until(lambda: all("t" in quorum.image.topics_by_name for quorum in cluster.quorums))
    node = cluster.nodes[leader.running._quorum.image.topics_by_name["t"].partitions[0].leader]
    client = node.connect()
    records = bytes(build_batch([(None, b"a", (), 0)]))
    client.send(produce("t", records, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    cluster.run_until(lambda: bool(client.replies))
    for content in (None, None, None, b"0\n1\n0 x\n"):
        assert [line for line in node.trace if line.startswith("file-")] == []
        broker = node.running
        node.begin_stop()
        cluster.run_until(lambda broker=broker: broker.is_stopped, 10_000)
        node._end()
        if content is not None:
            node.disk.write("/data/t-0/leader-epoch-checkpoint", content)
        node.start()
        cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    assert len([line for line in node.trace if line.startswith("file-rebuilt partition=t-0")]) == 1


def test_a_leader_epoch_that_was_not_synced_before_a_kill_is_not_told_as_damage() -> None:
    cluster, leader = formed()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    leader.connect().send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, CreateTopicsResponse)
    cluster.run_until(lambda: all("t" in quorum.image.topics_by_name for quorum in cluster.quorums))
    node = cluster.nodes[leader.running._quorum.image.topics_by_name["t"].partitions[0].leader]
    client = node.connect()
    records = bytes(build_batch([(None, b"a", (), 0)]))
    client.send(produce("t", records, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    cluster.run_until(lambda: bool(client.replies))
    assert node.disk.read("/data/t-0/leader-epoch-checkpoint") is None
    for damage, told in ((None, 0), (b"0\n1\n0 x\n", 1)):
        node.kill(is_power_cut=False)
        if damage is not None:
            node.disk.write("/data/t-0/leader-epoch-checkpoint", damage)
        node.start()
        cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
        assert len([line for line in node.trace if line.startswith("file-")]) == told


def test_a_killed_broker_is_fenced_at_once() -> None:
    cluster, leader = formed()
    number, killed = next((number, node) for number, node in cluster.nodes.items() if node is not leader)
    cluster.run(3_000)
    killed.kill()
    assert cluster.run_until(lambda: fenced(cluster, number), 400) < 400


def test_a_paused_broker_is_fenced_after_its_session_and_comes_back() -> None:
    cluster, leader = formed()
    number, paused = next((number, node) for number, node in cluster.nodes.items() if node is not leader)
    paused.pause()
    cluster.run(8_000)
    assert not fenced(cluster, number)
    cluster.run_until(lambda: fenced(cluster, number), 4_000)
    paused.resume()
    cluster.run_until(lambda: not fenced(cluster, number), 6_000)


def test_the_former_of_two_processes_with_copies_of_a_directory_halts() -> None:
    cluster = Cluster(count=3)
    former, later = broker(cluster, 4, "127.0.0.4"), broker(cluster, 4, "127.0.0.5")
    cluster.start()
    former.start()
    cluster.run_until(lambda: former.running.is_ready)
    later.start()
    cluster.run_until(lambda: later.running.is_ready)
    cluster.run_until(lambda: former.halted is not None, 3_000)
    assert "another process has registered with its node.id or a copy of its directories" in str(
        former.halted
    )
    cluster.run(5_000)
    assert later.halted is None
    assert later.running.is_ready


def test_a_broker_with_the_id_of_a_live_one_halts() -> None:
    cluster = Cluster(count=3)
    former, later = broker(cluster, 4, "127.0.0.4"), broker(cluster, 4, "127.0.0.5", directory=b"other")
    cluster.start()
    former.start()
    cluster.run_until(lambda: former.running.is_ready)
    later.start()
    cluster.run_until(lambda: later.halted is not None, 16_000)
    assert "a live broker has the same node.id" in str(later.halted)
    assert former.halted is None
    assert former.running.is_ready


def test_a_broker_with_the_id_of_a_dead_one_registers_once_that_is_fenced() -> None:
    cluster = Cluster(count=3)
    former, later = broker(cluster, 4, "127.0.0.4"), broker(cluster, 4, "127.0.0.5", directory=b"other")
    cluster.start()
    former.start()
    cluster.run_until(lambda: former.running.is_ready)
    former.pause()
    later.start()
    cluster.run(7_000)
    assert not later.running.is_ready
    cluster.run_until(lambda: later.running.is_ready, 5_000)
    former.resume()
    cluster.run_until(lambda: former.halted is not None, 10_000)


def test_a_broker_of_another_cluster_halts() -> None:
    cluster = Cluster(count=3)
    stranger = broker(cluster, 4, "127.0.0.4", cluster_id="BBBBBBBBBBBBBBBBBBBBBw")
    cluster.start()
    stranger.start()
    cluster.run_until(lambda: stranger.halted is not None, 16_000)
    assert "BBBBBBBBBBBBBBBBBBBBBw" in str(stranger.halted)
    assert cluster.is_ready


def test_controllers_without_brokers_register_as_controllers_alone() -> None:
    cluster = Cluster(count=5, voters=3, is_split=True).start()
    cluster.run_until(lambda: cluster.is_ready)
    image = cluster.quorums[0].image
    assert sorted(image.brokers) == [4, 5]
    assert sorted(image.controllers) == [1, 2, 3]
    assert cluster.create(cluster.nodes[NodeId(5)], "t", partitions=4) == 0
    topic = cluster.nodes[NodeId(5)].running._quorum.image.topics_by_name["t"]
    assert {placement.leader for placement in topic.partitions} == {4, 5}


def test_a_controller_without_broker_stops_and_starts_again() -> None:
    cluster = Cluster(count=4, voters=3, is_split=True).start()
    cluster.run_until(lambda: cluster.is_ready)
    leader = cluster.leader
    assert leader is not None
    stopping = leader.running
    leader.begin_stop()
    assert cluster.run_until(lambda: stopping.is_stopped) < 100, "it has no leaderships to move away"
    leader._end()
    assert cluster.create(cluster.nodes[NodeId(4)], "t") == 0
    leader.start()
    cluster.run_until(lambda: cluster.is_ready)
    cluster.run(100)
    assert {quorum.high_watermark for quorum in cluster.quorums} == {cluster.quorums[0].log_end_offset}


def test_a_feature_level_of_a_later_release_halts_the_nodes_that_learn_of_it() -> None:
    cluster, leader = formed()
    others = cluster.others(leader)
    raft, now = leader.running._quorum.raft, cluster.clock.now
    later = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL + 1)
    raft.append(batch_of([later], now.wall_ms), now)
    raft.flush(now)
    cluster.run_until(lambda: all(node.halted is not None for node in others))
    for node in others:
        assert f"metadata.version is finalized at level {METADATA_LEVEL + 1}" in str(node.halted)


def test_a_controller_whose_disk_is_full_resigns_and_its_successor_decides() -> None:
    cluster, leader = formed()

    def is_full(call: str, path: str) -> str | None:
        return NO_SPACE if call == "append" and "__cluster_metadata" in path else None

    leader.disk.fault = is_full
    others = cluster.others(leader)
    assert cluster.create(others[0], "t") == 0
    assert cluster.leader in others
    assert leader.halted is None
    cluster.run(10_000)
    assert cluster.create(leader, "u") == 0, "it serves clients, and forwards what they ask"
    leader.disk.fault = None
    cluster.run_until(lambda: "u" in leader.running._quorum.image.topics_by_name)
    assert all(node.halted is None for node in cluster.nodes.values())
