"""What a leader tells of reassignments at /metrics: whether they progress, and what is still to be copied."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from tests.broker.cluster.test_reassignments_of_nodes import Moving
from tests.broker.cluster.test_throttled_replicas import REASSIGNMENT_RATE, alter
from tests.broker.configuring import BROKER
from tests.broker.metrics.test_report import Reports

REASSIGNING = "kafka_server_replicamanager_reassigningpartitions"
BEHIND = "sparklog_reassignment_behind_records"
STALLED = "sparklog_reassignment_stalled_seconds"
THROTTLE = "sparklog_replication_throttle_set"


def told(reports: Reports) -> tuple[float, float, float]:
    """The reassigned partitions, the records that they wait for, and the seconds without progress."""
    (node,) = reports.nodes
    found = reports.scrape(node)
    return found.value(REASSIGNING), found.value(BEHIND), found.value(STALLED)


def leader_of(moving: Moving) -> Reports:
    leader = moving.cluster.leading()
    assert leader is not None
    return Reports(moving.cluster.nodes[NodeId(leader)])


def test_a_reassignment_to_a_node_that_is_down_is_stalled_though_producers_write() -> None:
    moving = Moving()
    moving.write()
    reports = leader_of(moving)
    moving.kill(5)
    moving.until(lambda: moving.fenced == [5])
    assert told(reports) == (0, 0, 0)
    assert moving.reassign([moving.cluster.leading() or 0, 5]) is ErrorCode.NONE
    moving.cluster.run(100)
    assert told(reports) == (1, 20, 0)
    moving.cluster.run(60_000)
    moving.write()
    reassigned, behind, stalled_s = told(reports)
    assert (reassigned, behind) == (1, 40)
    assert 60 <= stalled_s < 70
    moving.start(5)
    moving.settles([moving.cluster.leading() or 0, 5])
    assert told(reports) == (0, 0, 0)


def test_a_replica_that_joins_the_isr_is_progress_of_all() -> None:
    moving = Moving()
    moving.write()
    reports = leader_of(moving)
    moving.kill(4)
    moving.kill(5)
    moving.until(lambda: moving.fenced == [4, 5])
    assert moving.reassign([moving.cluster.leading() or 0, 4, 5]) is ErrorCode.NONE
    moving.cluster.run(100)
    assert told(reports) == (1, 40, 0)
    moving.cluster.run(30_000)
    assert told(reports)[2] >= 30
    moving.start(4)
    moving.until(lambda: 4 in moving.partition.isr)
    moving.cluster.run(100)
    assert told(reports) == (1, 20, 0)
    moving.cluster.run(30_000)
    assert told(reports)[2] >= 30


def test_a_throttle_is_told_by_its_setting() -> None:
    moving = Moving()
    moving.kill(3)
    moving.until(lambda: moving.fenced == [3])
    assert moving.reassign([2, 3, 4]) is ErrorCode.NONE  # nothing removes the throttle meanwhile
    node = moving.cluster.nodes[NodeId(2)]
    assert Reports(node).total(THROTTLE) == 0
    alter(moving.cluster, BROKER, "", {REASSIGNMENT_RATE: 1_000})
    found = Reports(node).scrape(node)
    assert found.total(THROTTLE) == found.value(THROTTLE, setting=REASSIGNMENT_RATE) == 1
