"""What the nodes of a simulated cluster tell at /metrics and /readyz: sums over the nodes count nothing
twice, the lag covers partitions led elsewhere, and times are those of the virtual clock.
"""

from collections.abc import Iterator

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.metrics.report import BrokerReport
from sparklog_server.metrics_text import Text
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster
from tests.broker.coordinators.test_coordinators_of_nodes import Client
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce
from tests.broker.world import produced as written
from tests.metrics.scraping import Scrape, parsed

_UNCOMMITTED = -1
_MOST_AT_ONCE = 40_000
"""The characters of one piece, which bounds its time."""


class Reports:
    """The reports of each node, as its daemon makes them."""

    def __init__(self, *nodes: SimulatedNode) -> None:
        self.nodes = nodes
        self.reports = {
            node: BrokerReport(*node.running.observed) for node in nodes if node.broker is not None
        }

    def scrape(self, node: SimulatedNode) -> Scrape:
        now = node._clock.now
        pieces = list(self.reports[node].render(Text(is_openmetrics=False), 1.0, now))
        assert max(map(len, pieces)) <= _MOST_AT_ONCE
        self.reports[node].ended(now)
        node._carry_out(node.running.tick(now))
        return parsed("".join(pieces))

    def total(self, name: str) -> float:
        """The sum over all nodes, as a board shows it."""
        return sum(self.scrape(node).total(name) for node in self.reports)

    def unready(self, node: SimulatedNode) -> str:
        return "".join(self.reports[node].unready())


def formed(**given: str) -> Cluster:
    cluster = Cluster(**given).start()
    cluster.run_until(lambda: cluster.is_ready)
    return cluster


def controller(cluster: Cluster) -> SimulatedNode:
    assert cluster.leader is not None
    return cluster.leader


def commit(client: Client, node: SimulatedNode, group: str, offsets: list[int]) -> None:
    parts = [OffsetCommitRequestPartition(index, offset) for index, offset in enumerate(offsets)]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_UNCOMMITTED,
        topics=[OffsetCommitRequestTopic(name="t", partitions=parts)],
    )
    answer = client.ask(node, request, 8, OffsetCommitResponse)
    assert isinstance(answer, OffsetCommitResponse)
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.NONE}


def test_the_lag_of_partitions_led_elsewhere_is_known_from_the_second_report_on() -> None:
    cluster = formed()
    client = Client(cluster)
    assert cluster.create(controller(cluster), "t", partitions=3) == 0
    for partition in range(3):
        assert cluster.write(b"a", b"b", b"c", partition=partition) == 0
    node = client.coordinator("g", 0, cluster.nodes[NodeId(1)])
    commit(client, node, "g", [0, 1, 2])
    reports = Reports(node)
    first = reports.scrape(node)
    assert first.total("sparklog_group_lag_unknown_partitions") == 2
    assert first.total("kafka_consumergroup_current_offset") == 3
    cluster.run(1_000)
    second = reports.scrape(node)
    assert second.total("sparklog_group_lag_unknown_partitions") == 0
    lags = [
        second.value("kafka_consumergroup_lag", consumergroup="g", topic="t", partition=str(partition))
        for partition in range(3)
    ]
    assert lags == [3, 2, 1]
    assert second.value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 6
    for partition in range(3):
        assert cluster.write(b"d", partition=partition) == 0
    cluster.run(6_000)
    reports.scrape(node)
    cluster.run(1_000)
    assert reports.scrape(node).value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 9


def test_a_sum_over_the_nodes_counts_nothing_twice() -> None:
    cluster = formed()
    assert cluster.create(controller(cluster), "t", partitions=4, replicas=3) == 0
    for partition in range(4):
        assert cluster.write(b"x", b"y", partition=partition) == 0
    cluster.run(2_000)
    reports = Reports(*cluster.nodes.values())
    assert reports.total("kafka_topic_partitions") == 4
    assert reports.total("kafka_topic_partition_current_offset") == 8
    assert reports.total("kafka_topic_partition_replicas") == 12
    assert reports.total("kafka_topic_partition_in_sync_replica") == 12
    assert reports.total("kafka_brokers") == 3
    assert reports.total("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert reports.total("kafka_controller_kafkacontroller_globalpartitioncount") == 4
    assert reports.total("kafka_server_replicamanager_leadercount") == 4
    assert reports.total("kafka_server_replicamanager_partitioncount") == 12
    records = [
        reports.scrape(node).value("kafka_server_brokertopicmetrics_messagesin_total")
        for node in reports.reports
    ]
    assert sum(records) == 8
    replicated_in = reports.total("kafka_server_brokertopicmetrics_replicationbytesin_total")
    assert replicated_in == reports.total("kafka_server_brokertopicmetrics_replicationbytesout_total") > 0
    assert reports.total("kafka_server_raftmetrics_number_of_voters") == 9
    assert {reports.unready(node) for node in reports.reports} == {""}


def test_a_node_that_is_down_shows_as_its_partitions() -> None:
    cluster = formed()
    assert cluster.create(controller(cluster), "t", partitions=6, replicas=1) == 0
    assert cluster.create(controller(cluster), "u", partitions=1, replicas=3) == 0
    cluster.run(2_000)
    down = next(node for node in cluster.nodes.values() if node is not controller(cluster))
    down.kill()
    cluster.run(15_000)
    reports = Reports(*cluster.nodes.values())
    offline = reports.total("kafka_controller_kafkacontroller_offlinepartitionscount")
    assert offline == 2
    of_controller = reports.scrape(controller(cluster))
    leaders = of_controller.samples["kafka_topic_partition_leader"].values()
    assert sum(leader == -1 for leader in leaders) == offline
    assert reports.total("kafka_server_replicamanager_underreplicatedpartitions") == 1
    assert reports.total("kafka_topic_partition_under_replicated_partition") == 1
    assert of_controller.value("kafka_controller_kafkacontroller_fencedbrokercount") == 1
    down.start()
    returned = Reports(down)
    assert returned.unready(down) == "the broker is not registered\n"
    cluster.run_until(lambda: cluster.is_ready)
    cluster.run(5_000)
    assert returned.unready(down) == ""
    assert Reports(*cluster.nodes.values()).total("kafka_server_replicamanager_isrexpands_total") == 1


def test_a_follower_that_is_not_in_sync_is_not_ready() -> None:
    cluster = formed(replica_lag_time_max_ms="2000")
    assert cluster.create(controller(cluster), "t", replicas=3) == 0
    assert cluster.write(b"x") == 0
    leader = cluster.leading()
    follower = next(
        node for number, node in cluster.nodes.items() if number not in (leader, controller(cluster))
    )
    follower.running._replication.close()  # type: ignore[union-attr]
    assert cluster.write(b"y", acks=1) == 0
    cluster.run_until(lambda: len(cluster.isr()) == 2)
    assert Reports(*cluster.nodes.values()).total("kafka_server_replicamanager_isrshrinks_total") == 1
    report = Reports(follower)
    cluster.run_until(lambda: report.unready(follower) != "")
    assert report.unready(follower) == "1 replicas of this node are not in sync, the first is t-0\n"


def test_a_directory_that_fails_is_told() -> None:
    world = World(1, **{"log.dirs": "/data/one,/data/two"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    reports = Reports(world.node)
    assert reports.unready(world.node) == ""
    partition = world.node.running._partitions.find("t", 0)
    assert partition is not None
    path = partition.home.log_dir.path  # type: ignore[attr-defined]
    world.disk.fault = lambda call, at: "injected" if call == "append" and "/t-0/" in at else None
    client.send(produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    world.disk.fault = None
    assert reports.unready(world.node) == f"log directories are offline: {path}\n"
    found = reports.scrape(world.node)
    assert found.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert found.value("kafka_log_logmanager_logdirectoryoffline", logDirectory=path) == 1
    assert found.value("kafka_server_replicamanager_offlinereplicacount") == 1
    assert found.value("kafka_server_brokertopicmetrics_failedproducerequests_total", topic="t") == 1
    assert "kafka_server_brokertopicmetrics_bytesrejected_total" in found.samples


def test_the_bytes_of_a_refused_batch_are_counted() -> None:
    world = World(1)
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    damaged = bytearray(world.batch(b"x"))
    damaged[-1] ^= 1
    client.send(produce("t", bytes(damaged), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    found = Reports(world.node).scrape(world.node)
    rejected = found.value("kafka_server_brokertopicmetrics_bytesrejected_total", topic="t")
    assert rejected == len(damaged)


def clock_of(world: World) -> Iterator[int]:
    """Every reading of the clock is 40 us after the one before."""
    late_us = 0
    while True:
        late_us += 40
        yield (world.clock.now.mono_us + late_us) * 1000
        if late_us > 400:
            late_us = 0


def test_the_time_of_requests_is_split_where_kafka_splits_it() -> None:
    world = World(1, **{"sparklog.http.listener": "http://127.0.0.1:0"})
    ticks = clock_of(world)
    world.node.work_clock = lambda: next(ticks)
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    client.send(produce("t", world.batch(b"x"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    world.ask(client, fetch("t", 1, max_wait_ms=200), FETCH_BY_NAME, FetchResponse)
    times = {times.api_key: times for times in world.node.running.observed[1].observers.times.by_key.values()}  # type: ignore[union-attr]
    produced, fetched = times[0], times[1]
    assert (produced.count, produced.local.count, produced.remote.count) == (1, 1, 0)
    assert 0 < produced.local.total_us <= 440
    assert (fetched.count, fetched.remote.count) == (1, 1)
    assert 190_000 < fetched.remote.total_us <= 210_000
    assert fetched.total.total_us >= fetched.remote.total_us
    found = Reports(world.node).scrape(world.node)
    quantile = {"request": "FetchConsumer", "quantile": "0.50"}
    assert 150 < found.value("kafka_network_requestmetrics_remotetimems", **quantile) < 260
    assert found.value("kafka_network_requestmetrics_remotetimems", request="Produce", quantile="0.99") < 0.01
    assert found.value("kafka_network_requestmetrics_remotetimems_count", request="Produce") == 1


def test_errors_are_counted_by_request_and_error_code() -> None:
    world = World(seed=1, **{"sparklog.http.listener": "http://127.0.0.1:0"})
    world.node.start()
    world.settle()
    reports, client = Reports(world.node), world.node.connect()
    assert world.create(client, "t", partitions=2) == 0
    assert world.create(client, "t") == ErrorCode.TOPIC_ALREADY_EXISTS
    world.settle()
    good, corrupt = world.batch(b"v"), world.batch(b"v")[:-1] + b"\xff"
    several = [produce("t", good, acks=acks) for acks in (1, 1, ACKS_ALL)]
    client.send_together(several, PRODUCE_BY_NAME, ProduceResponse)
    client.send_together(
        [produce("t", good), produce("t", corrupt), produce("absent", good), produce("t", good, partition=7)],
        PRODUCE_BY_NAME,
        ProduceResponse,
    )
    world.settle()
    world.ask(client, produce("t", corrupt, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    world.ask(client, fetch("t", 99), FETCH_BY_NAME, FetchResponse)
    world.settle()
    scrape = reports.scrape(world.node)

    def count(request: str, error: str) -> float:
        return scrape.value("kafka_network_requestmetrics_errors_total", request=request, error=error)

    assert count("CreateTopics", "TOPIC_ALREADY_EXISTS") == 1
    assert count("Produce", "CORRUPT_MESSAGE") == 2
    assert count("Produce", "UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert count("Fetch", "OFFSET_OUT_OF_RANGE") == 1
    assert scrape.total("kafka_network_requestmetrics_errors_total") == 6


def test_the_sum_of_hidden_topics_never_goes_down() -> None:
    world = World(
        seed=1, **{"sparklog.http.listener": "http://127.0.0.1:0", "sparklog.metrics.topics.max": "1"}
    )
    world.node.start()
    world.settle()
    reports, client = Reports(world.node), world.node.connect()
    name = "kafka_server_brokertopicmetrics_messagesin_total"

    def write(topic: str, count: int) -> None:
        request = produce(topic, world.batch(*[b"v"] * count))
        assert written(world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse))[0] == 0

    def delete(topic: str) -> None:
        removal = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
        world.ask(client, removal, 5, DeleteTopicsResponse)
        world.settle(60_000)

    def told() -> dict[str, float]:
        scrape = reports.scrape(world.node)
        return {dict(labels).get("topic", ""): value for labels, value in scrape.samples[name].items()}

    for topic, count in (("a", 1), ("b", 2), ("c", 4)):
        assert world.create(client, topic) == 0
        world.settle()
        write(topic, count)
    assert told() == {"": 7, "a": 1, "(others)": 6}
    write("b", 8)
    delete("b")
    assert told() == {"": 15, "a": 1, "(others)": 14}
    delete("a")  # c stays hidden, although there is room now
    assert told() == {"": 15, "(others)": 14}
    assert world.create(client, "b") == 0
    world.settle()
    write("b", 16)
    assert told() == {"": 31, "b": 16, "(others)": 14}
    delete("c")
    assert told() == {"": 31, "b": 16, "(others)": 14}
