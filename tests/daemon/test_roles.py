"""A controller and a broker, each a process of its own."""

import signal
from pathlib import Path

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog_server.cli.main import main
from tests.compatibility.kafka_broker import free_ports
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"


def given(directory: Path, node: int, controller: int, **settings: str) -> list[str]:
    """The settings of a node, as arguments, after its format."""
    settings |= {
        "node.id": str(node),
        "log.dirs": f"{directory}/{node}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["format", "--cluster-id", CLUSTER_ID, *words]) == 0
    return words


def test_a_broker_serves_under_a_controller_of_another_process(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    control = given(
        tmp_path, 1, port, **{"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{port}"}
    )
    serve = given(tmp_path, 2, port, **{"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0"})
    with BrokerProcess(*control) as controller, BrokerProcess(*serve) as broker:
        assert controller.address() == ("127.0.0.1", port)
        servers = broker.bootstrap_servers()
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": 3})
            assert [node.node_id for node in admin.describe_cluster().nodes] == [2]
            assert {part.leader for part in admin.describe_topics(["t"])["t"].partitions} == {2}
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", value=b"one", partition=1)
        with Consumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TopicPartition("t", 1)])
            consumer.seek_to_beginning()
            assert [record.value for record in consumer.poll(timeout_ms=PATIENCE_S * 1000)] == [b"one"]
        for process in (broker, controller):
            process.child.send_signal(signal.SIGTERM)
            assert process.child.wait(PATIENCE_S) == 0
