"""Moves of replicas, replication factors and states of nodes, in a cluster that nodes join and leave."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import TopicPartition
from sparklog_server.cli.main import main
from tests.cli.conftest import PROGRAM, Told

PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(nodes=3) as broker:
        yield broker


class Shell:
    """The command line against the cluster."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Told:
        self._capfd.readouterr()
        code = main(list(arguments))
        sys.stdout.flush()
        return Told(code, *self._capfd.readouterr())

    def replicas(self, topic: str) -> list[list[int]]:
        """The replicas of the partitions of a topic."""
        (told,) = self("topics", "describe", topic, "--json").json
        return [one["replicas"] for one in told["partitions"]]

    def nodes(self) -> list[int]:
        """The nodes that are registered."""
        told = self("cluster", "describe", "--fenced", "--json").json
        return [one["node"] for one in told["brokers"]]

    def reason(self, topic: str) -> str | None:
        """What a topic that is being reassigned waits for; None if it is not."""
        told = self("partitions", "reassignments", topic, "--json").json
        return told[0]["reason"] if told else None


def until(is_so: Callable[[], bool]) -> None:
    """Return once a claim is true: brokers learn of a change one after the other."""
    until_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s


@pytest.fixture
def shell(
    cluster: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    return Shell(capfd)


@contextmanager
def joined(cluster: EmbeddedBroker, node: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A node that joins the cluster, in service."""
    arguments = ["start", "--join", cluster.bootstrap_servers.split(",")[0], "--node-id", str(node)]
    arguments += ["--listen", "127.0.0.1:0", "--data-dir", str(directory)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline().startswith(f"ready node={node} ")
        yield child
    finally:
        child.kill()
        child.wait(PATIENCE_S)
        assert child.stdout is not None
        child.stdout.close()


def filled(shell: Shell, topic: str, partitions: int, factor: int) -> None:
    """A topic with records in each partition."""
    shell("topics", "create", topic, "--partitions", str(partitions), "--replication-factor", str(factor))
    assert shell("bench", "produce", topic, "--records", "4000", "--size", "200", "--json").code == 0


def test_a_node_joins_gets_its_share_is_drained_and_leaves(
    cluster: EmbeddedBroker, shell: Shell, tmp_path: Path
) -> None:
    filled(shell, "shared", 12, 2)
    with joined(cluster, 4, tmp_path) as child:
        planned = shell("partitions", "balance", "--topic", "shared", "--throttle", "50MB/s", "--json").json
        assert planned["moves"]
        assert (planned["is_executed"], planned["nodes"][3]["before"]["replicas"]) == (False, 0)
        assert not any(4 in replicas for replicas in shell.replicas("shared"))

        moved = shell("partitions", "balance", "--topic", "shared", "--execute", "--concurrent", "3")
        assert (moved.code, len(moved.rows)) == (0, len(planned["moves"]))
        assert sum(4 in replicas for replicas in shell.replicas("shared")) >= 5
        assert shell("partitions", "reassignments").err == "no partition is being reassigned\n"
        again = shell("partitions", "balance", "--topic", "shared")
        assert again[:2] == (0, "")
        assert again.err == "nothing to move: the brokers are balanced\n"

        due = shell("cluster", "status", "--json").json["due_leaders"]
        drained = shell("cluster", "drain", "4")
        assert (drained.code, "drained: no partition is led there" in drained.err) == (0, True)
        status = shell("cluster", "status", "--json").json
        assert status["due_leaders"] <= due
        row = status["nodes"][3]
        assert (row["leaders"], row["asked"], row["replicas"] >= 5) == (0, "drained", True)
        other = next(number for number, found in enumerate(shell.replicas("shared")) if 4 not in found)
        refused = shell("partitions", "reassign", f"shared:{other}", "--to", "4,1")
        assert (refused.code, "node 4 is drained: it gets no new replicas" in refused.err) == (1, True)

        assert shell("cluster", "activate", "4").code == 0
        assert shell("cluster", "status", "--json").json["nodes"][3]["leaders"] > 0

        left = shell("cluster", "decommission", "4", "--throttle", "1GB/s")
        assert (left.code, left.err) == (
            0,
            "node 4 has no replicas: stop it now; the cluster forgets it by itself\n",
        )
        assert not any(4 in replicas for replicas in shell.replicas("shared"))
        child.terminate()
        until(lambda: 4 not in shell.nodes())
    assert "no node 4; the cluster has 1,2,3" in shell("cluster", "decommission", "4").err


def assert_a_move_that_another_command_cancels_is_not_counted(cluster: EmbeddedBroker, shell: Shell) -> None:
    """Node 5 does not answer, so the move does not end before it is cancelled."""
    shell("topics", "create", "halted", "--replica-assignment", "1")

    def cancel() -> None:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            until(lambda: bool(admin.list_reassignments()))
            admin.alter_reassignments({TopicPartition("halted", 0): None})

    other = threading.Thread(target=cancel)
    other.start()
    told = shell("partitions", "reassign", "halted", "--to", "5", "--execute")
    other.join(PATIENCE_S)
    assert (told.code, told.err.splitlines()[-1]) == (1, "moved 0 partitions")
    assert "1 partition: halted:0: another command has cancelled" in told.err
    assert shell.replicas("halted") == [[1]]


@pytest.mark.long  # in one run of four a client waits 10 s for ListOffsets of a leader while node 5 is gone
def test_a_node_that_is_gone_is_decommissioned_although_it_was_unregistered(
    cluster: EmbeddedBroker, shell: Shell, tmp_path: Path
) -> None:
    filled(shell, "kept", 3, 2)
    with joined(cluster, 5, tmp_path) as child:
        assert shell("partitions", "reassign", "kept", "--to", "1,5", "--execute").code == 0
        child.send_signal(signal.SIGSTOP)
        assert_a_move_that_another_command_cancels_is_not_counted(cluster, shell)
        child.kill()
        child.wait(PATIENCE_S)
    shell("topics", "create", "stuck", "--replica-assignment", "1:2")
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_reassignments({TopicPartition("stuck", 0): [1, 5]})
        (row,) = shell("partitions", "reassignments", "--json").json
        assert (row["replicas"], row["adding"], row["removing"]) == ([1, 5], [5], [2])
        until(lambda: shell.reason("stuck") == "a new replica has not caught up: node 5 is down")
        again = shell("partitions", "reassign", "stuck", "--to", "1,3")
        assert (again.code, "stuck:0: being reassigned already" in again.err) == (1, True)
        cancelled = shell("partitions", "reassignments", "stuck:0", "--cancel")
        assert (cancelled.code, cancelled.err) == (0, "cancelled 1 partition: stuck:0\n")
        assert sorted(shell.replicas("stuck")[0]) == [1, 2]
        refused = shell("partitions", "reassign", "stuck", "--to", "1,5", "--execute")
        assert (refused.code, "stuck:0: node 5 is down" in refused.err) == (1, True)
        admin.unregister_broker(5)
    assert shell.replicas("kept") == [[1, 5]] * 3
    left = shell("cluster", "decommission", "5")
    assert (left.code, left.err) == (0, "node 5 has been unregistered\n")
    assert [(len(one), 5 in one) for one in shell.replicas("kept")] == [(2, False)] * 3


def test_replication_factors_are_raised_and_lowered_with_a_plan(shell: Shell) -> None:
    filled(shell, "thin", 4, 1)
    before = shell.replicas("thin")
    planned = shell("topics", "alter", "thin", "--replication-factor", "3", "--validate-only")
    assert (planned.code, len(planned.rows)) == (0, 4)
    assert "nothing was changed; without --validate-only they move" in planned.err
    assert shell.replicas("thin") == before
    raised = shell("topics", "alter", "thin", "--replication-factor", "3", "--throttle", "1GB/s")
    assert (raised.code, raised.err.splitlines()[-1]) == (0, "moved 4 partitions")
    assert [(len(after), after[0]) for after in shell.replicas("thin")] == [(3, one[0]) for one in before]
    assert shell("topics", "alter", "thin", "--replication-factor", "1").code == 0
    assert shell.replicas("thin") == before
    refused = shell("topics", "alter", "thin", "--replication-factor", "4")
    assert (refused.code, "needs 4 nodes that take replicas; the cluster has 3" in refused.err) == (1, True)


def test_a_cluster_grows_by_factor_and_balance_in_one_plan(shell: Shell) -> None:
    filled(shell, "young", 6, 1)
    planned = shell("cluster", "grow", "--topic", "young")
    assert planned.code == 0
    assert "replication factor of young: 1 → 3\n" in planned.err
    assert "nothing was changed; --execute moves them" in planned.err
    assert shell("cluster", "grow", "--topic", "young", "--execute", "--yes").code == 0
    assert [len(replicas) for replicas in shell.replicas("young")] == [3] * 6
    assert shell("cluster", "grow", "--topic", "young", "--all-topics").code == 2


def test_a_leadership_that_cannot_move_says_why_until_the_time_is_over(shell: Shell) -> None:
    shell("topics", "create", "alone", "--replica-assignment", "2")
    told = shell("cluster", "drain", "2", "--timeout", "1s")
    assert (told.code, ["2", "alone:0", "it has no other replica"] in told.rows) == (1, True)
    assert "node 2 is still drained, and the cluster goes on once it can" in told.err
    assert shell("cluster", "activate", "2").code == 0
    assert shell("cluster", "drain", "2", "--no-wait").code == 0
    assert shell("cluster", "activate", "2").code == 0


def test_replicas_without_room_say_so_and_go_back_with_activate(shell: Shell) -> None:
    shell("topics", "create", "wide", "--replica-assignment", "3:1:2")
    told = shell("cluster", "decommission", "3", "--timeout", "1s")
    assert told.code == 1
    reason = "no room elsewhere: a replication factor of 3 needs 3 open nodes besides it, and there are 2"
    assert ["3", "wide:0", reason] in told.rows
    assert "a replication factor above the 2 nodes left: " in told.err
    assert shell("cluster", "activate", "3").code == 0
    assert shell.replicas("wide") == [[3, 1, 2]]


@pytest.mark.parametrize("verb", ["cordon", "drain", "decommission"])
def test_a_state_is_refused_for_an_unknown_node_and_for_all_nodes(shell: Shell, verb: str) -> None:
    unknown = shell("cluster", verb, "9")
    assert (unknown.code, "no node 9; the cluster has 1,2,3" in unknown.err) == (1, True)
    every = shell("cluster", verb, "1", "2", "3")
    assert (every.code, "no other node would take replicas" in every.err) == (1, True)
    assert {one["asked"] for one in shell("cluster", "status", "--json").json["nodes"]} == {"active"}


def test_a_cordoned_node_gets_no_new_replicas(shell: Shell) -> None:
    assert shell("cluster", "cordon", "1").code == 0
    shell("topics", "create", "elsewhere", "--partitions", "4", "--replication-factor", "2")
    assert all(sorted(replicas) == [2, 3] for replicas in shell.replicas("elsewhere"))
    last = shell("cluster", "drain", "2", "3")
    assert (last.code, "node 1 is cordoned" in last.err) == (1, True)
    assert shell("cluster", "activate", "1").code == 0


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        ([("moved", 0, [1, 9])], "moved:0: node 9 is not registered; the cluster has 1,2,3"),
        ([("moved", 0, [2, 1]), ("moved", 7, [1])], "moved:7: no such partition"),
        ([("gone", 0, [1])], "gone:0: no such partition"),
        ([("moved", 0, [1, 1])], "moved:0: a node is listed twice in 1,1"),
        ([("moved", 0, [])], "moved:0: no replicas are listed"),
    ],
)
def test_a_plan_that_the_cluster_has_outlived_is_refused_as_a_whole(
    shell: Shell, tmp_path: Path, partitions: list[tuple[str, int, list[int]]], problem: str
) -> None:
    shell("topics", "create", "moved", "--replica-assignment", "1:2", "--if-not-exists")
    told = shell("partitions", "reassign", "--file", written(tmp_path, partitions), "--execute")
    assert (told.code, told.out, problem in told.err) == (1, "", True)
    assert "nothing was changed" in told.err
    assert shell.replicas("moved") == [[1, 2]]


def written(directory: Path, partitions: list[tuple[str, int, list[int]]]) -> str:
    """The path of a plan in Kafka's form."""
    path = directory / "plan.json"
    listed = [{"topic": topic, "partition": number, "replicas": nodes} for topic, number, nodes in partitions]
    path.write_text(json.dumps({"version": 1, "partitions": listed}))
    return str(path)


def test_a_plan_of_kafkas_tool_is_executed_and_then_there_is_nothing_to_move(
    shell: Shell, tmp_path: Path
) -> None:
    shell("topics", "create", "filed", "--replica-assignment", "1:2,2:3")
    plan = written(tmp_path, [("filed", 0, [3, 2]), ("filed", 1, [3, 2])])
    assert shell("partitions", "reassign", "--file", plan).rows == [
        ["filed:0", "1,2", "3,2", "0"],
        ["filed:1", "2,3", "3,2", "0"],
    ]
    assert shell("partitions", "reassign", "--file", plan, "--execute").code == 0
    assert shell.replicas("filed") == [[3, 2], [3, 2]]
    again = shell("partitions", "reassign", "--file", plan, "--execute")
    assert again == (0, "", "nothing to move: the replicas are where the plan has them\n")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"partitions": []}',
        '{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
        '{"topic": "t", "partition": 0, "replicas": [2]}]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_plan_is_an_error_of_usage(shell: Shell, tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    assert shell("partitions", "reassign", "--file", str(tmp_path / "plan.json")).code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["balance", "--throttle", "0"],
        ["balance", "--throttle", "fast"],
        ["balance", "--dry-run", "--execute"],
        ["balance", "--concurrent", "0"],
        ["reassign", "t", "--to", "1,x"],
        ["reassign", "t"],
        ["reassign", "--to", "1"],
    ],
)
def test_options_that_cannot_be_meant_are_bad_usage(shell: Shell, arguments: list[str]) -> None:
    assert shell("partitions", *arguments).code == 2


def test_nothing_is_cancelled_where_nothing_moves(shell: Shell) -> None:
    told = shell("partitions", "reassignments", "--cancel")
    assert told == (0, "", "nothing to cancel: no partition is being reassigned\n")
    assert shell("partitions", "reassignments", "--json").json == []
