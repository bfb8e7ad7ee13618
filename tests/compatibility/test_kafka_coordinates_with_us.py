"""Coordinators that move between a real Kafka and two of our brokers: groups of both protocols keep their
members and offsets, and each transaction is ended by another coordinator than that which began it.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import Partition
from sparklog.model import TopicPartition
from sparklog_server.coordinator.placement import partition_for
from tests.compatibility.mixed_cluster import Place, answering
from tests.daemon.broker_process import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.long]
TOPIC, ID = "moving", "mover"
PARTITIONS, COORDINATOR_PARTITIONS = 3, 4
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CONTROLLER, KAFKA, OWN, OTHER = 1, 2, 3, 4
ORDER = (KAFKA, OWN, KAFKA, OTHER, OWN, KAFKA)
"""The brokers that coordinate, in turns."""
_MOVED = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize("controller", ["kafka", "own"])
def test_groups_and_transactions_go_on_while_kafka_and_we_coordinate_in_turns(
    tmp_path: Path, controller: str
) -> None:
    place = Place(tmp_path, "controller", "broker", "broker", "broker", replicas=3)
    kafka = place.kafka(KAFKA)
    nodes = [place.kafka(CONTROLLER) if controller == "kafka" else place.own(CONTROLLER), kafka]
    nodes += [place.own(OWN), place.own(OTHER)]
    servers = ",".join(place.servers(node) for node in place.brokers)
    with ExitStack() as running:
        processes = [running.enter_context(node.process()) for node in nodes]
        for node in place.brokers:
            client = answering(place.servers(node), place.brokers)
        if controller == "own":
            with Admin(bootstrap_servers=servers) as admin:
                admin.update_features(
                    {"group.version": 1}
                )  # Kafka serves the consumer protocol from there on
        for created in client.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
            created.result(20)
        producer = Transactions(servers)
        members = [Member(servers, protocol) for protocol in ("classic", "consumer")]
        producer.begin()
        producer.end(is_commit=True)
        for member in members:
            member.read_all(producer.committed)
        ids = [member.id for member in members]
        coordinators = running.enter_context(Coordinators(place, servers, [one.group for one in members]))
        for turn, leader in enumerate(ORDER):
            producer.begin()
            coordinators.move_to(leader)
            producer.end(is_commit=turn % 3 != 1)
            for member in members:
                member.read_all(producer.committed)
                assert coordinators.committed(member.group) == member.positions()
            assert [(member.id, member.rebalances) for member in members] == [(one, 1) for one in ids]
        # The last of them stops, and one of ours takes its place.
        producer.begin()
        processes[nodes.index(kafka)].terminate()
        wait_until(lambda: coordinators.leaders() <= {OWN, OTHER})
        producer.end(is_commit=True)
        for member in members:
            member.read_all(producer.committed)
            assert coordinators.committed(member.group) == member.positions()
        assert [(member.id, member.rebalances) for member in members] == [(one, 1) for one in ids]
        for member in members:
            member.close()
    assert not [
        line for line in kafka.log().splitlines() if "Failed to load" in line or "Error loading" in line
    ]


class Transactions:
    """A transactional producer with one transaction after the other, and what it has committed."""

    def __init__(self, servers: str) -> None:
        self.committed: list[bytes] = []
        self._written: list[bytes] = []
        self._count = 0
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": ID, "log_level": 0})
        self._producer.init_transactions(30)

    def begin(self) -> None:
        """Begin a transaction, and write to every partition."""
        self._producer.begin_transaction()
        self._written = []
        self._write()

    def end(self, *, is_commit: bool) -> None:
        """Write to every partition once more, and end the transaction."""
        self._write()
        if is_commit:
            self._producer.commit_transaction(30)
            self.committed += self._written
        else:
            self._producer.abort_transaction(30)

    def _write(self) -> None:
        for partition in range(PARTITIONS):
            self._written.append(b"%d" % self._count)
            self._producer.produce(TOPIC, self._written[-1], partition=partition)
            self._count += 1
        assert self._producer.flush(30) == 0


class Member:
    """The only member of a group; `rebalances` counts its assignments and revocations."""

    def __init__(self, servers: str, protocol: str) -> None:
        self.group = f"group-{protocol}"
        self.rebalances = 0
        self._read: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": self.group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._changed, on_revoke=self._changed)

    def _changed(self, *_: object) -> None:
        self.rebalances += 1

    @property
    def id(self) -> str:
        """The member id."""
        return str(self._consumer.memberid())

    def read_all(self, expected: Sequence[bytes]) -> None:
        """Read exactly these, in any order, since the beginning; commit the positions."""

        def is_read() -> bool:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._read.append(message.value())
            return len(self._read) >= len(expected)

        wait_until(is_read)
        assert sorted(self._read) == sorted(expected)
        wait_until(self._is_committed)

    def _is_committed(self) -> bool:
        """librdkafka reports a coordinator that has moved, and looks for the next one after that."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _MOVED:
                raise
            return False
        return True

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition."""
        parts = self._consumer.position(self._consumer.assignment())
        return {TopicPartition(part.topic, part.partition): part.offset for part in parts}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Coordinators:
    """The coordinators of some groups and of the transactional id."""

    def __init__(self, place: Place, servers: str, groups: Sequence[str]) -> None:
        self._brokers = place.brokers
        self._admin = Admin(bootstrap_servers=servers)
        self._at = [TopicPartition(OFFSETS, partition_for(group, COORDINATOR_PARTITIONS)) for group in groups]
        self._at.append(TopicPartition(TRANSACTIONS, partition_for(ID, COORDINATOR_PARTITIONS)))

    def __enter__(self) -> "Coordinators":
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def move_to(self, leader: int) -> None:
        """Let the replicas on a broker be the preferred ones, elect them, and wait until they lead."""
        order = [leader, *(node for node in self._brokers if node != leader)]
        self._admin.alter_reassignments(dict.fromkeys(self._at, order))
        wait_until(lambda: not self._admin.list_reassignments())
        wait_until(self._are_in_sync)
        self._admin.elect_leaders(self._at)
        wait_until(lambda: self.leaders() == {leader})

    def leaders(self) -> set[int]:
        """The brokers that coordinate now."""
        return {part.leader for part in self._parts()}

    def _are_in_sync(self) -> bool:
        return all(len(part.isr) == len(self._brokers) for part in self._parts())

    def _parts(self) -> list[Partition]:
        topics = self._admin.describe_topics([OFFSETS, TRANSACTIONS])
        return [topics[topic].partitions[index] for topic, index in self._at]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group, as its coordinator tells them."""
        return {at: one.offset for at, one in self._admin.list_group_offsets([group])[group].items()}
