"""A cluster with a real Kafka in it: our broker under its controller, its broker under ours, brokers of both
under either, and quorums whose voters are of both.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.compatibility.kafka_broker import KafkaNode
from tests.compatibility.mixed_cluster import OwnNode, Place, answering, create, create_many, described, use
from tests.daemon.broker_process import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.long]


def test_our_broker_serves_under_a_controller_of_kafka(tmp_path: Path) -> None:
    place = Place(tmp_path, "controller", "broker")
    controller, broker, servers = place.kafka(1), place.own(2), place.servers(2)
    with controller.process(), broker.process(is_killed=True):
        use(servers, "first", [2])
        assert described(place) == ["1", "2"]
        create_many(servers, [2])
    with controller.process(), broker.process():
        assert {"first", "many-99"} <= set(answering(servers, [2]).list_topics(timeout=5).topics)
        use(servers, "second", [2])


def test_a_broker_of_kafka_serves_under_our_controller(tmp_path: Path) -> None:
    place = Place(tmp_path, "controller", "broker")
    controller, broker, servers = place.own(1), place.kafka(2), place.servers(2)
    with controller.process():
        with broker.process(is_killed=True):
            use(servers, "first", [2])
            assert described(place) == ["1", "2"]
        with broker.process():
            use(servers, "second", [2])
            create_many(servers, [2])
    with controller.process(), broker.process():
        assert {"first", "second", "many-99"} <= set(answering(servers, [2]).list_topics(timeout=5).topics)
        use(servers, "third", [2])


@pytest.mark.parametrize("kind", ["kafka", "own"])
def test_brokers_of_both_share_coordinators_and_transactions(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path, "controller", "broker", "broker")
    controller = place.kafka(1) if kind == "kafka" else place.own(1)
    ours, other = place.own(2), place.kafka(3)
    with controller.process(), other.process():
        with ours.process():
            for name in ("first", "second", "third", "fourth"):  # some have their coordinators on the other
                for node in place.brokers:
                    use(place.servers(node), f"{name}-by-{node}", place.brokers)
        create(answering(place.servers(3), [3]), "without-ours")
        with ours.process():
            wait_until(partial(knows, answering(place.servers(2), place.brokers), "without-ours"))
            use(place.servers(2), "with-ours", place.brokers)


@pytest.mark.parametrize("kinds", [("kafka", "own", "own"), ("kafka", "kafka", "own")])
def test_a_quorum_of_both_survives_the_loss_of_each_node_and_of_its_disk(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    place = Place(tmp_path, *["broker,controller"] * 3)
    with ExitStack() as running:

        def begun(node: int) -> KafkaNode | OwnNode:
            return place.kafka(node) if kinds[node - 1] == "kafka" else place.own(node)

        nodes = {node: begun(node) for node in place.ids}
        processes = {node: running.enter_context(one.process(is_killed=True)) for node, one in nodes.items()}
        for node in place.ids:
            use(place.servers(node), f"by-{node}", place.brokers)
        create_many(place.servers(1), place.brokers)
        for is_disk_lost in (False, True):
            for node in place.ids:
                processes[node].kill()
                processes[node].wait(10)
                rest = [other for other in place.brokers if other != node]
                create(answering(place.servers(rest[0]), rest), f"without-{node}-{is_disk_lost}")
                if is_disk_lost:
                    nodes[node] = begun(node)
                processes[node] = running.enter_context(nodes[node].process(is_killed=True))
                admin = answering(place.servers(node), place.brokers)
                wait_until(partial(knows, admin, f"without-{node}-{is_disk_lost}"))
            if not is_disk_lost:  # the partitions of a lost disk have no leader
                for node in place.ids:
                    use(place.servers(node), f"again-by-{node}", place.brokers)
        assert described(place) == ["1", "2", "3"]
        for node in place.ids:  # it began with a snapshot of another node
            assert not (place.metadata_log(node) / f"{0:020}.log").exists()


def knows(admin: AdminClient, topic: str) -> bool:
    """Whether a broker knows the topic."""
    return topic in admin.list_topics(timeout=5).topics
