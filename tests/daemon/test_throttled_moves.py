"""A replica moves to another node of a live cluster within a throttle, beside a producer."""

import time
from threading import Event, Thread

import sparklog
from sparklog import Admin, Producer, TopicPartition
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.topics import NewTopic
from tests.daemon.broker_process import wait_until

RATE, SIZE, VALUE = 2_000_000, 10_000_000, 50_000
EVERY_BROKER, TOPIC = ConfigResource("broker", ""), ConfigResource("topic", "t")
LEADER_RATE, LEADER_REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
REASSIGNMENT_RATE = "sparklog.reassignment.throttled.rate"
AT = TopicPartition("t", 0)


def set_to(name: str, value: object) -> ConfigChange:
    return ConfigChange(name, str(value))


def delete(name: str) -> ConfigChange:
    return ConfigChange(name, operation="delete")


def test_a_replica_moves_at_the_rate_and_the_throttle_ends_with_the_move() -> None:
    with (
        sparklog.embedded(nodes=3) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer,
    ):
        admin.create_topics([NewTopic("t", assignment=[[1, 2]])])
        for _ in range(SIZE // VALUE):
            producer.send("t", value=bytes(VALUE), partition=0)
        producer.flush()
        # Nothing moves before the other throttle is set.
        admin.alter_configs({TOPIC: [set_to(LEADER_REPLICAS, "*")], EVERY_BROKER: [set_to(LEADER_RATE, 0)]})
        admin.alter_reassignments({AT: [1, 2, 3]})
        admin.alter_configs({EVERY_BROKER: [set_to(REASSIGNMENT_RATE, RATE)]})

        def size() -> int:
            (directory,) = admin.describe_log_dirs([3], partitions=[AT])[3]
            return directory.replicas[AT].size_bytes if AT in directory.replicas else 0

        is_over, latencies = Event(), list[float]()

        def produce() -> None:
            while not is_over.wait(0.05):
                begun_s = time.perf_counter()
                producer.send("t", value=b"beside", partition=0).result(20)
                latencies.append(time.perf_counter() - begun_s)

        beside = Thread(target=produce)
        beside.start()
        try:
            assert size() == 0
            assert REASSIGNMENT_RATE in admin.describe_resources([EVERY_BROKER])[EVERY_BROKER]
            admin.alter_configs({EVERY_BROKER: [delete(LEADER_RATE)]})
            wait_until(lambda: size() > 0)
            begun_s, before = time.perf_counter(), size()
            wait_until(lambda: size() > SIZE * 9 // 10)
            rate = (size() - before) / (time.perf_counter() - begun_s)
            wait_until(lambda: not admin.list_reassignments())
        finally:
            is_over.set()
            beside.join()
        assert (
            0.8 * RATE < rate < 1.1 * RATE
        )  # a machine with other work stalls for longer than a bucket lasts
        assert sorted(latencies)[len(latencies) // 2] < 0.5  # not of the replica that catches up

        wait_until(lambda: REASSIGNMENT_RATE not in admin.describe_resources([EVERY_BROKER])[EVERY_BROKER])
