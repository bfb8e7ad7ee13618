"""`sparklog health`: what it finds in the facts of a cluster, and in live ones."""

import os
import re
import signal

import pytest

import sparklog
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.admin.cluster import Cluster, Node, Quorum, QuorumReplica, Reassignment
from sparklog.client.admin.storage import LogDir
from sparklog.client.admin.topics import Partition, Topic
from sparklog.errors import BrokerError, ErrorCode
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset, TopicPartition
from sparklog_server.cli.findings import Finding, exit_code
from sparklog_server.cli.health_checks import (
    Facts,
    GroupSample,
    GroupWatch,
    PeerCertificate,
    TopicSettings,
    findings,
    reserve_of,
)
from tests.cli.conftest import Tell
from tests.daemon.broker_process import wait_until

GIB = 1 << 30
DAY_S = 86_400.0
WRONG = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="wrong";'


def partition(
    leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), *, eligible: tuple[int, ...] = (), count: int = 3
) -> Partition:
    return Partition(
        0,
        NodeId(leader),
        LeaderEpoch(0),
        tuple(NodeId(node) for node in range(1, count + 1)),
        tuple(map(NodeId, isr)),
        eligible_leader_replicas=tuple(map(NodeId, eligible)),
    )


def topic(*partitions: Partition, name: str = "t") -> Topic:
    return Topic(name, ZERO_UUID, False, partitions)


def voter(node: int, *, end: int = 5_000, ago_ms: int = 100) -> QuorumReplica:
    return QuorumReplica(NodeId(node), Offset(end), 1_000_000 - ago_ms, 1_000_000 - ago_ms)


def directory(node: int, usable: int, *, error: BrokerError | None = None) -> LogDir:
    return LogDir(NodeId(node), "/data", error, 100 * GIB, usable, {})


NODES = tuple(Node(NodeId(node), "h", 9091 + node) for node in (1, 2, 3))


def quorum(*voters: QuorumReplica) -> Quorum:
    return Quorum(NodeId(1), LeaderEpoch(2), Offset(5_000), voters, ())


WELL = Facts(
    Cluster("c", NodeId(1), NODES),
    (topic(partition()),),
    {"t": TopicSettings(2, False)},
    quorum(voter(1, ago_ms=0), voter(2), voter(3)),
    {NodeId(node): (directory(node, 50 * GIB),) for node in (1, 2, 3)},
    {NodeId(node): -1 for node in (1, 2, 3)},
    0.0,
    (PeerCertificate("h:9092", 200 * DAY_S),),
    GroupWatch(5.0, {"g": GroupSample("Stable", 1, 10, 5)}, {"g": GroupSample("Stable", 1, 9, 9)}),
    {},
)


def wrong(facts: Facts) -> list[Finding]:
    return [one for one in findings(facts) if one.state != "OK"]


def test_a_sound_cluster_has_a_line_for_each_check_and_no_warning() -> None:
    found = findings(WELL)
    assert exit_code(found) == 0
    assert [one.subject for one in found] == [
        *("partitions", "controller", "brokers", "log directories", "disk", "settings", "certificates"),
        *("clocks", "groups"),
    ]


def with_dirs(*dirs: LogDir) -> Facts:
    return WELL._replace(dirs={NodeId(1): dirs})


def watched(before: GroupSample, after: GroupSample) -> Facts:
    return WELL._replace(groups=GroupWatch(5.0, {"g": before}, {"g": after}))


@pytest.mark.parametrize(
    ("facts", "state", "subject", "found", "remedy"),
    [
        pytest.param(
            WELL._replace(topics=(topic(partition(-1, ())),)),
            *("CRITICAL", "offline partitions", "1 partition has no leader: t-0", "1, 2, 3"),
            id="no leader",
        ),
        pytest.param(
            WELL._replace(topics=(topic(partition(1, (1,))),)),
            *("CRITICAL", "min ISR", "has too few replicas in sync for acks=all: t-0", "start brokers 2, 3"),
            id="too few in sync",
        ),
        pytest.param(
            WELL._replace(topics=(topic(partition(1, (1, 2))),)),
            *(
                "WARN",
                "in-sync replicas",
                "1 partition has a replica that is not in sync: t-0",
                "look at brokers 3",
            ),
            id="one behind",
        ),
        pytest.param(
            WELL._replace(topics=(topic(partition(1, (1, 2, 3), eligible=(3,))),)),
            *(
                "WARN",
                "eligible leaders",
                "may be the only one with all records: t-0",
                "do not remove their directories",
            ),
            id="eligible leader replicas",
        ),
        pytest.param(
            WELL._replace(quorum=None, refused={"quorum": "NOT_LEADER"}),
            *("CRITICAL", "controller", "the metadata quorum has no leader: NOT_LEADER", "majority"),
            id="no controller",
        ),
        pytest.param(
            WELL._replace(quorum=None, refused={"quorum": "CLUSTER_AUTHORIZATION_FAILED (31)"}),
            *("UNKNOWN", "controller", "not seen: CLUSTER_AUTHORIZATION_FAILED (31)", ""),
            id="a user that may not see the controller",
        ),
        pytest.param(
            WELL._replace(quorum=quorum(voter(1, ago_ms=0), voter(2), voter(3, ago_ms=9_000))),
            *("WARN", "voters", "controller 3 is silent for 9 s: 2 of 3 voters are heard", "start node 3"),
            id="a silent voter",
        ),
        pytest.param(
            WELL._replace(quorum=quorum(voter(1, ago_ms=0), voter(2), voter(3, end=100))),
            *("WARN", "voters", "controller 3 is 4900 records behind the leader", "disk"),
            id="a voter that lags",
        ),
        pytest.param(
            WELL._replace(quorum=quorum(voter(1, ago_ms=0))),
            *("WARN", "voters", "the quorum of 3 brokers has one voter", "three voters"),
            id="one voter",
        ),
        pytest.param(
            WELL._replace(
                cluster=Cluster("c", NodeId(1), (*NODES[:2], Node(NodeId(3), "h", 9094, is_fenced=True)))
            ),
            *("WARN", "brokers", "broker 3 at h:9094 is fenced", "start it"),
            id="a fenced broker",
        ),
        pytest.param(
            with_dirs(
                directory(1, 50 * GIB),
                directory(1, -1, error=BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "disk")),
            ),
            *("CRITICAL", "log directories", "/data of broker 1 is offline", "replace the disk"),
            id="an offline directory",
        ),
        pytest.param(
            with_dirs(directory(1, GIB)),
            *("CRITICAL", "disk", f"the reserve is {GIB}, producers are refused", "retention"),
            id="a disk within its reserve",
        ),
        pytest.param(
            with_dirs(directory(1, 10 * GIB)),
            *("WARN", "disk", "(10%)", "retention"),
            id="a disk that fills up",
        ),
        pytest.param(
            WELL._replace(topics=(topic(partition(1, (1,), count=1)),)),
            *("WARN", "replication factor", "1 topic has one replica: t", "--replication-factor 3"),
            id="one replica",
        ),
        pytest.param(
            WELL._replace(settings={"t": TopicSettings(1, False)}),
            *("WARN", "min.insync.replicas", "with one of them in sync: t", "min.insync.replicas=2"),
            id="min ISR 1 of 3",
        ),
        pytest.param(
            WELL._replace(settings={"t": TopicSettings(3, False)}),
            *("WARN", "min.insync.replicas", "every replica for acks=all", "below the number"),
            id="min ISR 3 of 3",
        ),
        pytest.param(
            WELL._replace(settings={"t": TopicSettings(2, True)}),
            *(
                "WARN",
                "unclean elections",
                "1 topic allows a leader that lacks acknowledged records: t",
                "unclean.leader.election.enable=false",
            ),
            id="unclean elections",
        ),
        pytest.param(
            WELL._replace(certificates=(PeerCertificate("h:9092", 20 * DAY_S),)),
            *("WARN", "certificates", "h:9092 ends in 20 days", "renew"),
            id="a certificate that ends soon",
        ),
        pytest.param(
            WELL._replace(certificates=(PeerCertificate("h:9092", 2 * DAY_S),)),
            *("CRITICAL", "certificates", "h:9092 ends in 2 days", "renew"),
            id="a certificate that ends at once",
        ),
        pytest.param(
            WELL._replace(certificates=(PeerCertificate("h:9092", None, "connection refused"),)),
            *("WARN", "certificates", "was not seen: connection refused", "look"),
            id="a certificate that is not seen",
        ),
        pytest.param(
            WELL._replace(clock_skew_s=-4.2),
            *("WARN", "clocks", "4.2 s behind that of this machine", "chrony"),
            id="a clock that is behind",
        ),
        pytest.param(
            watched(GroupSample("Stable", 2, 10, 5), GroupSample("Stable", 2, 90, 5)),
            *("WARN", "groups", "group g has committed nothing for 5 s, and its lag is 90", "stuck"),
            id="a stuck group",
        ),
        pytest.param(
            watched(GroupSample("Empty", 0, 10, 5), GroupSample("Empty", 0, 90, 5)),
            *("WARN", "groups", "has committed nothing", "start its consumers"),
            id="a group without members",
        ),
        pytest.param(
            watched(GroupSample("Stable", 2, 10, 5), GroupSample("Stable", 2, 90, 15)),
            *("WARN", "groups", "its lag grew from 10 to 90 in 5 s", "add members"),
            id="a group that falls behind",
        ),
        pytest.param(
            watched(GroupSample("PreparingRebalance", 2, 10, 5), GroupSample("PreparingRebalance", 2, 10, 5)),
            *("WARN", "groups", "PreparingRebalance at both looks", "join and leave"),
            id="a group that rebalances on and on",
        ),
        pytest.param(
            WELL._replace(dirs=None, refused={"disks": "CLUSTER_AUTHORIZATION_FAILED"}),
            *("UNKNOWN", "disks", "not seen: CLUSTER_AUTHORIZATION_FAILED", ""),
            id="a user that may not see disks",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_value_and_what_to_do(
    facts: Facts, state: str, subject: str, found: str, remedy: str
) -> None:
    (one,) = wrong(facts)
    assert (one.state, one.subject) == (state, subject)
    assert found in one.found
    assert remedy in one.remedy
    assert exit_code([one]) == {"UNKNOWN": 0, "WARN": 1, "CRITICAL": 2}[state]


def test_a_sentence_about_many_partitions_is_whole_before_their_names() -> None:
    behind = tuple(topic(partition(1, (1, 2)), name=f"t{number}") for number in range(189))
    assert [one.found for one in wrong(WELL._replace(topics=behind))] == [
        "189 partitions have a replica that is not in sync: t0-0, t1-0, t2-0, t3-0, t4-0 and 184 more"
    ]


def test_a_broker_that_does_not_answer_is_not_in_service() -> None:
    (one,) = wrong(WELL._replace(silent=frozenset({NodeId(2)})))
    assert (one.state, one.subject) == ("WARN", "brokers")
    assert one.found == "broker 2 at h:9093 does not answer, and is not fenced so far"


def test_many_names_are_counted_and_hostile_ones_inert() -> None:
    nasty = "\x1b[31m\u202et\t"
    facts = WELL._replace(topics=tuple(topic(partition(-1, ()), name=f"{nasty}{n}") for n in range(9)))
    (one,) = wrong(facts)
    assert one.found.startswith("9 partitions have no leader: \\x1b[31m\\u202et\\t0-0, ")
    assert one.found.endswith(" and 4 more")
    assert re.search("[\x00-\x1f\u202e]", "".join(one)) is None


def test_the_default_reserve_is_a_hundredth_of_the_disk_up_to_a_gibibyte() -> None:
    assert [reserve_of(-1, total) for total in (50 * GIB, 900 * GIB)] == [GIB // 2, GIB]
    assert [reserve_of(7, total) for total in (50 * GIB, 900 * GIB)] == [7, 7]


def test_a_sound_broker_exits_with_0_and_json_has_every_finding(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    told = tell("health")
    assert told.code in (0, 1)  # the disk of the machine may be full
    states = {row[1]: row[0] for row in told.rows}
    assert states["partitions"] == states["controller"] == states["brokers"] == states["clocks"] == "OK"
    answer = tell("health", "--json").json
    assert answer["exit_code"] == told.code
    assert {one["subject"] for one in answer["findings"]} == set(states)
    assert set(answer["findings"][0]) == {"state", "subject", "found", "remedy"}


def test_groups_are_watched_for_the_time_asked_for(
    tell: Tell, shared_broker: EmbeddedBroker, topic: str, group: str
) -> None:
    tell("topics", "create", topic)
    with Admin(bootstrap_servers=shared_broker.bootstrap_servers) as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    rows = [row for row in tell("health", "--watch", "1").rows if row[1] == "groups"]
    assert rows == [["OK", "groups", rows[0][2], ""]]
    assert "watched for 1 s" in rows[0][2]


def test_a_cluster_that_does_not_answer_is_critical_in_one_line(tell: Tell) -> None:
    told = tell("health", "--bootstrap-server", "127.0.0.1:1")
    assert (told.code, told.err) == (2, "")
    assert len(told.rows) == 1
    assert told.rows[0][:2] == ["CRITICAL", "cluster"]
    assert "127.0.0.1:1" in told.rows[0][2]
    assert tell("health", "-b", "127.0.0.1:1", "--json").json["state"] == "CRITICAL"


def test_a_mistake_in_the_settings_is_no_finding(tell: Tell) -> None:
    told = tell("health", "-X", "sasl.mechanims=PLAIN")
    assert (told.code, told.out) == (2, "")
    assert "sasl.mechanims" in told.err


def test_a_dead_broker_is_told_by_what_depends_on_it(tell: Tell) -> None:
    with sparklog.embedded(nodes=3, broker_session_timeout_ms=2_000) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("strict", 1, 3, configs={"min.insync.replicas": "3"})])
            admin.create_topics([NewTopic("lone", assignment=[[3]])])
        os.kill(cluster.pids[2], signal.SIGSTOP)
        server = cluster.bootstrap_servers.split(",")[0]

        def is_told() -> bool:
            states = {row[1]: row[0] for row in tell("health", "-b", server).rows}
            return (
                states.get("offline partitions") == states.get("min ISR") == "CRITICAL"
                and states.get("brokers") == states.get("voters") == "WARN"
            )

        try:
            wait_until(is_told)
            assert tell("health", "-b", server).code == 2
        finally:
            os.kill(cluster.pids[2], signal.SIGCONT)


def test_the_end_of_the_certificate_of_a_secure_broker_is_seen(tell: Tell) -> None:
    with sparklog.embedded(secure=True) as broker:
        settings = str(broker.data_dir / "client.properties")
        told = tell("health", "--command-config", settings, "--json")
        (seen,) = [one for one in told.json["findings"] if one["subject"] == "certificates"]
        assert seen["state"] == "OK"
        days = int(re.search(r"ends in (\d+) days", seen["found"])[1])  # type: ignore[index]
        assert 300 < days < 900
        refused = tell("health", "--command-config", settings, "-X", f"sasl.jaas.config={WRONG}")
        assert refused.code == 2
        assert refused.rows[0][:2] == ["CRITICAL", "cluster"]


def test_states_that_were_asked_of_nodes_are_told_until_they_end() -> None:
    asked = {NodeId(1): "drained", NodeId(2): "decommissioned", NodeId(3): "cordoned"}
    assert [(one.state, one.subject) for one in wrong(WELL._replace(asked=asked))] == [
        ("WARN", "node states")
    ] * 3
    found = [one.found for one in wrong(WELL._replace(asked=asked, topics=()))]
    assert found == [
        "node 1 is drained: it leads nothing",
        "node 2 is decommissioned, and has no replicas",
        "node 3 is cordoned: it gets no new replicas",
    ]


def test_a_replica_that_a_reassignment_adds_is_no_replica_out_of_sync() -> None:
    added = topic(partition(isr=(1, 2)))
    at = TopicPartition("t", 0)
    moving = {at: Reassignment(added.partitions[0].replicas, (NodeId(3),), ())}
    assert [one.subject for one in wrong(WELL._replace(topics=(added,)))] == ["in-sync replicas"]
    told = findings(WELL._replace(topics=(added,), moving=moving))
    assert ("OK", "moves", "1 partition is being reassigned: t-0") in [one[:3] for one in told]
    assert not [one for one in told if one.state != "OK"]


AT = TopicPartition("t", 0)


def moving_to(node: int, *, is_registered: bool = True, is_fenced: bool = False) -> Facts:
    """A partition of nodes 1 and 2, which a reassignment adds a replica on another node to."""
    replicas = (NodeId(1), NodeId(2), NodeId(node))
    moved = Partition(0, NodeId(1), LeaderEpoch(0), replicas, replicas[:2])
    nodes = [*NODES[:2], *[Node(NodeId(node), "h", 9091 + node, is_fenced=is_fenced)] * is_registered]
    return WELL._replace(
        cluster=Cluster("c", NodeId(1), tuple(nodes)),
        topics=(topic(moved),),
        moving={AT: Reassignment(replicas, (NodeId(node),), ())},
    )


def of_subject(facts: Facts, subject: str) -> list[tuple[str, str]]:
    return [(one.state, one.found) for one in findings(facts) if one.subject == subject]


def test_a_reassignment_that_waits_for_a_node_is_told_from_one_that_catches_up() -> None:
    assert of_subject(moving_to(3), "moves") == [("OK", "1 partition is being reassigned: t-0")]
    assert of_subject(moving_to(3, is_fenced=True), "moves") == [
        ("WARN", "t-0 does not progress: a new replica has not caught up: node 3 is down")
    ]
    assert of_subject(moving_to(4, is_registered=False), "moves") == [
        ("WARN", "t-0 does not progress: a new replica has not caught up: node 4 is not registered")
    ]


def test_a_broker_that_partitions_list_and_that_is_not_registered_is_told() -> None:
    facts = WELL._replace(cluster=Cluster("c", NodeId(1), NODES[:2]))
    assert of_subject(facts, "brokers")[1:] == [
        ("WARN", "broker 3 is not registered; 1 partition has a replica there: t-0")
    ]


def test_a_decommissioned_node_that_cannot_be_emptied_says_why() -> None:
    for nodes in (NODES, NODES[:2]):  # registered, and no more
        facts = WELL._replace(cluster=Cluster("c", NodeId(1), nodes), asked={NodeId(3): "decommissioned"})
        (told,) = of_subject(facts, "node states")
        assert told == (
            "WARN",
            "node 3 is decommissioned, and has 1 replica left; 1 cannot leave: t-0: no room elsewhere: "
            "a replication factor of 3 needs 3 open nodes besides it, and there are 2",
        )


def test_a_throttle_is_told_once_nothing_is_left_to_throttle() -> None:
    throttles = {NodeId(1): ("leader.replication.throttled.rate",), NodeId(2): ()}
    assert of_subject(WELL._replace(throttles=throttles), "throttles") == [
        ("WARN", "leader.replication.throttled.rate is set for broker 1, and no replica is catching up")
    ]
    assert of_subject(moving_to(3)._replace(throttles=throttles), "throttles") == []
    behind = (topic(partition(isr=(1, 2))),)
    assert of_subject(WELL._replace(throttles=throttles, topics=behind), "throttles") == []


def test_a_directory_that_is_offline_names_the_one_that_can_take_its_replicas() -> None:
    error = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "disk")
    lost = directory(1, -1, error=error)
    (alone,) = [one for one in wrong(with_dirs(lost)) if one.subject == "log directories"]
    assert "--offline" not in alone.remedy
    found = with_dirs(lost, LogDir(NodeId(1), "/more", None, 100 * GIB, 50 * GIB, {}))
    (beside,) = [one for one in wrong(found) if one.subject == "log directories"]
    assert "`sparklog log-dirs move --offline --broker 1 --to /more`" in beside.remedy


def test_a_rate_that_is_set_for_a_live_broker_is_told_until_it_is_deleted(tell: Tell) -> None:
    def told() -> list[str]:
        return [row[2] for row in tell("health").rows if row[1] == "throttles"]

    assert told() == []
    rate = "follower.replication.throttled.rate"
    assert tell("configs", "set", "--broker", "default", f"{rate}=1000").code == 0
    try:
        wait_until(lambda: told() == [f"{rate} is set for broker 1, and no replica is catching up"])
    finally:
        assert tell("configs", "delete", "--broker", "default", rate).code == 0
    wait_until(lambda: not told())
