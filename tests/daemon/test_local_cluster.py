"""The directory of a cluster on one machine: its format, its second start, and what is refused."""

from collections.abc import Callable

import pytest

from sparklog.errors import SettingsError
from sparklog_server.daemon.local_cluster import CLUSTER_FILE, LocalCluster, open_cluster
from sparklog_server.log.directory.identity import DirectoryRefused
from sparklog_server.simulation.disk import SimulatedDisk


def free_ports(first: int) -> Callable[[int], int]:
    """Takes 0 for the next free port."""
    taken = iter(range(first, 65_536))
    return lambda port: port or next(taken)


def opened(
    disk: SimulatedDisk,
    *,
    count: int = 3,
    base_port: int = 9092,
    first: int = 40_000,
    given: tuple[str, ...] = (),
) -> LocalCluster:
    return open_cluster(
        disk, "/c", count=count, base_port=base_port, assignments=given, reserve=free_ports(first)
    )


def listeners(cluster: LocalCluster) -> list[str]:
    return [str(one) for loaded in cluster.nodes for one in loaded.settings.listeners]


def test_clients_come_first_and_controllers_behind_them() -> None:
    cluster = opened(SimulatedDisk())
    assert listeners(cluster) == [
        f"{name}://127.0.0.1:{9092 + node + shift}"
        for node in range(3)
        for name, shift in (("PLAINTEXT", 0), ("CONTROLLER", 3))
    ]
    assert [loaded.settings.node_id for loaded in cluster.nodes] == [1, 2, 3]
    controllers = tuple(("127.0.0.1", port) for port in (9095, 9096, 9097))
    assert {loaded.settings.quorum.bootstrap_servers for loaded in cluster.nodes} == {controllers}
    assert [loaded.warnings for loaded in cluster.nodes] == [()] * 3


def test_a_cluster_is_the_same_at_its_second_start_and_keeps_its_controller_ports() -> None:
    disk = SimulatedDisk()
    first = opened(disk, base_port=0)
    again = opened(disk, base_port=0, first=50_000)
    assert again.cluster_id == first.cluster_id
    assert listeners(again)[1::2] == listeners(first)[1::2]
    assert listeners(again)[0] == "PLAINTEXT://127.0.0.1:50000"


def test_each_node_has_an_http_port_of_its_own() -> None:
    cluster = opened(SimulatedDisk(), given=("sparklog.http.listener=http://127.0.0.1:9464",))
    assert [str(loaded.settings.http_listener) for loaded in cluster.nodes] == [
        f"HTTP://127.0.0.1:{9464 + node}" for node in range(3)
    ]


def test_settings_are_those_of_every_node() -> None:
    cluster = opened(SimulatedDisk(), given=("num.partitions=4",))
    assert [loaded.settings.num_partitions for loaded in cluster.nodes] == [4, 4, 4]


def replication(cluster: LocalCluster) -> set[tuple[tuple[int, int], tuple[int, int], int]]:
    """For topics and for the transaction state log (replicas, minimum in sync), replicas of offsets: of each
    node.
    """
    return {
        (
            (settings.default_replication_factor, settings.topics.min_insync_replicas),
            (
                settings.internal_topics.transaction_state_log_replication_factor,
                settings.internal_topics.transaction_state_log_min_isr,
            ),
            settings.internal_topics.offsets_topic_replication_factor,
        )
        for settings in (loaded.settings for loaded in cluster.nodes)
    }


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_from_three_nodes_on_every_record_is_on_three_of_them(count: int, expected: int) -> None:
    minimum = min(expected, 2)
    cluster = opened(SimulatedDisk(), count=count)
    assert replication(cluster) == {((expected, minimum), (expected, minimum), expected)}


def test_the_settings_of_replication_can_be_others() -> None:
    given = (
        "default.replication.factor=2",
        "min.insync.replicas=1",
        "offsets.topic.replication.factor=2",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    )
    assert replication(opened(SimulatedDisk(), given=given)) == {((2, 1), (1, 1), 2)}


@pytest.mark.parametrize(
    ("count", "base_port", "said"),
    [
        (0, 0, "1 to 16 nodes"),
        (17, 0, "1 to 16 nodes"),
        (3, 65_531, "must be below 65536"),
        (3, -1, "must be below 65536"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(count: int, base_port: int, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        opened(SimulatedDisk(), count=count, base_port=base_port)


def test_a_cluster_keeps_its_number_of_nodes() -> None:
    disk = SimulatedDisk()
    opened(disk)
    with pytest.raises(SettingsError, match="holds a cluster of 3 nodes: start it with --nodes 3"):
        opened(disk, count=5)


def test_a_damaged_file_of_the_cluster_is_refused() -> None:
    disk = SimulatedDisk()
    opened(disk)
    disk.write(f"/c/{CLUSTER_FILE}", b"cluster.id=x\n")
    with pytest.raises(DirectoryRefused, match=r"cluster\.properties: controllers is missing"):
        opened(disk)


def test_a_format_that_was_interrupted_is_not_taken_for_a_cluster() -> None:
    disk = SimulatedDisk()
    opened(disk)
    disk.remove(f"/c/{CLUSTER_FILE}")
    with pytest.raises(DirectoryRefused, match=r"/c/node-1.*already formatted"):
        opened(disk)
