"""`sparklog cluster`, `log-dirs`, `producers`, `quotas` and `bench`."""

import pytest

from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import Tell


def test_the_cluster_is_described(tell: Tell, shared_broker: EmbeddedBroker) -> None:
    head, node = tell("cluster", "describe").rows
    assert (head[0], head[2:]) == ("cluster", ["controller=1", "brokers=1"])
    assert node == ["1", shared_broker.bootstrap_servers, "", "controller"]
    told = tell("cluster", "describe", "--fenced", "--json").json
    assert sorted(told) == ["brokers", "cluster_id", "controller"]
    assert head[1] == f"id={told['cluster_id']}"
    assert sorted(told["brokers"][0]) == ["host", "is_controller", "is_fenced", "node", "port", "rack"]


def test_the_quorum_is_described(tell: Tell) -> None:
    head, replica = tell("cluster", "quorum").rows
    assert head[:2] == ["quorum", "leader=1"]
    assert (replica[0], replica[1], replica[3]) == ("1", "leader", "0")
    told = tell("cluster", "quorum", "--json").json
    assert sorted(told) == ["high_watermark", "leader", "leader_epoch", "replicas"]
    assert told["replicas"][0]["log_end_offset"] >= told["high_watermark"] > 0


def test_features_are_described(tell: Tell) -> None:
    assert any(row[0] == "metadata.version" and row[3] != "0" for row in tell("cluster", "features").rows)
    assert sorted(tell("cluster", "features", "--json").json[0]) == [
        "feature",
        "finalized_level",
        "max_level",
        "min_level",
    ]


def test_log_directories_are_described_with_sizes(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    tell("produce", topic, "-p", "1", stdin="x" * 1000 + "\n")
    head, replica = tell("log-dirs", "describe", "--topic", f"{topic}:1").rows
    assert (head[0], head[2]) == ("broker=1", "online")
    assert replica[:2] == [topic, "1"]
    assert int(replica[2]) > 1000
    (told,) = tell("log-dirs", "describe", "--broker", "1", "--topic", topic, "--json").json
    assert [one["partition"] for one in told["replicas"]] == [0, 1]
    assert (told["error"], told["path"]) == (None, head[1])
    assert "no broker 9" in tell("log-dirs", "describe", "--broker", "9").err
    assert "no topic 'nowhere'" in tell("log-dirs", "describe", "--topic", "nowhere").err


def test_replicas_are_moved_by_name_or_because_they_are_offline(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    (told,) = tell("log-dirs", "describe", "--json").json
    moved = tell("log-dirs", "move", topic, "--broker", "1", "--to", told["path"])
    assert (moved.code, f"move to {told['path']} on broker 1" in moved.err) == (0, True)
    asked = ("log-dirs", "move", "--broker", "1", "--to", told["path"])
    assert tell(*asked, "--offline")[::2] == (0, "no replica of broker 1 is offline\n")
    assert tell(*asked).code == 2


def test_producers_of_a_partition_are_described(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    assert tell("producers", topic).rows == []
    tell("produce", topic, "-p", "1", stdin="a\nb\n")
    (row,) = tell("producers", topic).rows
    assert (row[:2], row[4], row[6]) == ([topic, "1"], "1", "")
    (told,) = tell("producers", f"{topic}:1", "--json").json
    assert (told["last_sequence"], told["transaction_start_offset"]) == (1, -1)
    assert "no partition 5" in tell("producers", f"{topic}:5").err


def test_quotas_are_set_described_and_deleted(tell: Tell) -> None:
    assert tell("quotas", "set", "--user", "alice", "producer_byte_rate=1000", "request_percentage=12.5") == (
        0,
        "",
        "set producer_byte_rate,request_percentage of user 'alice'\n",
    )
    assert tell("quotas", "set", "--user", "alice", "--client-id-default", "consumer_byte_rate=1e6")[:2] == (
        0,
        "",
    )
    assert tell("quotas", "set", "--user-default", "producer_byte_rate=1e12")[:2] == (0, "")
    assert sorted(tell("quotas", "describe", "--user", "alice").rows) == [
        ["client-id <default>, user 'alice'", "consumer_byte_rate", "1000000"],
        ["user 'alice'", "producer_byte_rate", "1000"],
        ["user 'alice'", "request_percentage", "12.5"],
    ]
    assert tell("quotas", "describe", "--user", "alice", "--strict", "--json").json == [
        {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1000.0, "request_percentage": 12.5}}
    ]
    assert tell("quotas", "describe", "--user-default", "--strict").rows == [
        ["user <default>", "producer_byte_rate", "1000000000000"]
    ]
    assert tell("quotas", "delete", "--user", "alice", "producer_byte_rate", "request_percentage").code == 0
    assert tell("quotas", "delete", "--user", "alice", "--client-id-default", "consumer_byte_rate").code == 0
    assert tell("quotas", "delete", "--user-default", "producer_byte_rate").code == 0
    assert tell("quotas", "describe").rows == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "producer_byte_rate=1"],
        ["set", "--user", "a", "producer_byte_rate=0"],
        ["set", "--user", "a", "producer_byte_rate=inf"],
        ["set", "--user", "a", "producer_byte_rate=many"],
        ["set", "--user", "a", "--user-default", "producer_byte_rate=1"],
        ["set", "--user", "a", "--ip", "127.0.0.1", "connection_creation_rate=1"],
        ["delete", "--user", "a"],
    ],
)
def test_a_quota_that_cannot_be_meant_is_bad_usage(tell: Tell, arguments: list[str]) -> None:
    assert tell("quotas", *arguments).code == 2


def test_a_quota_that_nobody_knows_is_refused(tell: Tell) -> None:
    refused = tell("quotas", "set", "--user", "a", "nonsense=1")
    assert (refused.code, "nonsense" in refused.err) == (1, True)


def test_benchmarks_measure_and_leave_nothing_behind(tell: Tell) -> None:
    keys = ["bench", "bytes", "latency_ms", "megabytes_per_s", "records", "records_per_s", "seconds"]
    written = tell("bench", "produce", "--records", "2000", "--json").json
    assert (sorted(written), written["records"], written["bytes"]) == (keys, 2000, 200_000)
    assert list(written["latency_ms"]) == ["p50", "p95", "p99", "p99.9", "max"]
    aged = tell("bench", "latency", "--records", "200", "--rate", "2000", "--json").json
    assert (sorted(aged), aged["records"]) == (keys, 200)
    assert 0 < aged["latency_ms"]["p50"] <= aged["latency_ms"]["max"]
    assert "sparklog-bench" not in tell("topics", "list").out


def test_records_that_come_due_faster_than_they_can_go_out_all_arrive(tell: Tell) -> None:
    assert (
        tell("bench", "latency", "--records", "2000", "--rate", "10000000", "--json").json["records"] == 2000
    )


@pytest.mark.parametrize("how", [[], ["--batches"]])
def test_reading_is_measured_over_what_is_there(tell: Tell, topic: str, how: list[str]) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    assert "has no records" in tell("bench", "consume", topic).err
    tell("bench", "produce", topic, "--records", "500", "--size", "50")
    assert tell("bench", "consume", topic, *how, "--json").json["records"] == 500
    assert "no topic 'nowhere'" in tell("bench", "produce", "nowhere", "--records", "1").err


def test_a_benchmark_tells_rows_for_other_programs(tell: Tell) -> None:
    rows = tell("bench", "produce", "--records", "100", "--rate", "10000").rows
    assert [row[0] for row in rows] == [
        "records",
        "seconds",
        "records/s",
        "MB/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
    ]
