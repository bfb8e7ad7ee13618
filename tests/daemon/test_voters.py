"""Voters are added, removed and replaced while the cluster runs."""

import threading
from pathlib import Path

import pytest

from sparklog import Admin, Producer
from sparklog.client.admin.topics import NewTopic
from tests.daemon.broker_process import wait_until
from tests.daemon.voter_nodes import VoterNodes


def test_a_cluster_of_one_node_grows_a_voter_by_the_command_and_shrinks_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = VoterNodes(tmp_path, 2)
    with nodes.running(1, 2):
        nodes.add(2)
        assert nodes.voters() == [1, 2]
        assert nodes.command("add-voter", "2", f"127.0.0.1:{nodes.controller_ports[2]}") == 1
        assert nodes.command("status") == 0
        assert nodes.command("remove-voter", "1") == 0
        nodes.await_voters(2)
        assert nodes.quorum().leader == 2
        assert nodes.command("remove-voter", "2") == 1
    told = capsys.readouterr()
    assert "added\tvoter=2" in told.out
    assert "node 2 is not an observer of the metadata quorum (there: none)" in told.err
    assert "Node 2 is the only voter: add another one first." in told.err


def test_controllers_join_by_themselves_and_replace_a_lost_disk(tmp_path: Path) -> None:
    nodes = VoterNodes(tmp_path, 3, **{"controller.quorum.auto.join.enable": "true"})
    with nodes.running(1, 2, 3):
        nodes.await_voters(1, 2, 3)
        former = nodes.directories()[2]
        nodes.lose_disk(2)
        wait_until(lambda: nodes.directories().get(2, former) != former, 20)
        nodes.stop(3)  # the new voter counts: it forms the majority with node 1
        with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, replication_factor=1)])
        assert nodes.voters() == [1, 2, 3]


@pytest.mark.long
def test_a_cluster_grows_to_five_voters_and_shrinks_to_three_under_load(tmp_path: Path) -> None:
    nodes, is_over = VoterNodes(tmp_path, 5), threading.Event()
    with nodes.running(1, 2, 3, 4, 5):
        with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 3, replication_factor=3)])
        counts: list[int] = []

        def load() -> None:
            with Producer(bootstrap_servers=nodes.bootstrap_servers) as producer:
                while not is_over.wait(0.01):
                    counts.append(producer.send("t", b"r").result().offset)

        def topics() -> None:
            with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
                number = 0
                while not is_over.wait(0.1):
                    admin.create_topics([NewTopic(f"t-{number}", 1, replication_factor=1)])
                    number += 1

        threads = [threading.Thread(target=load), threading.Thread(target=topics)]
        for thread in threads:
            thread.start()
        try:
            for node in (2, 3, 4, 5):
                nodes.add(node)
            nodes.await_voters(1, 2, 3, 4, 5)
            nodes.lose_disk(4)
            nodes.await_observer(4)
            assert nodes.command("remove-voter", "4") == 0
            nodes.add(4)
            assert nodes.command("remove-voter", "1") == 0
            nodes.await_voters(2, 3, 4, 5)
            assert nodes.command("remove-voter", "2") == 0
            nodes.await_voters(3, 4, 5)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert len(counts) > 100
