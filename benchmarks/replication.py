"""What three replicas cost: throughput, processor time and latency of acks=all, resident memory, and the
processor time of idle partitions. One machine runs the three nodes and the client.
"""

import socket
import time

from benchmarks import cpu, harness, raw, rdkafka, trio

RECORDS = 1_000_000
VALUE_BYTES = 1_024
THROUGHPUT_PARTITIONS = 6
LATENCIES, WARM_UP = 6_000, 1_000
IDLE_PARTITIONS = 1_000
SETTLE_S, IDLE_S = 5.0, 20.0


def throughput(figures: harness.Figures, cluster: trio.Trio, topic: str) -> None:
    """A gigabyte of values through librdkafka; its leaders are spread over the nodes."""
    cluster.create(topic, [trio.ordered(number % trio.COUNT + 1) for number in range(THROUGHPUT_PARTITIONS)])
    before_s = cluster.cpu_s()
    load = rdkafka.produce(cluster, topic, count=RECORDS, size=VALUE_BYTES, settings=("acks=all",))
    used_s, size = cluster.cpu_s() - before_s, load["bytes"]
    if load["failed"]:
        raise RuntimeError(f"{cluster.name}: {load['failed']} records failed")
    figures.add("librdkafka, 1 KB, acks=all: values", "MB/s", cluster.name, size / 1e6 / load["seconds"])
    figures.add("librdkafka, 1 KB, acks=all: CPU of all nodes", "s/GB", cluster.name, used_s / (size / 1e9))
    control = cpu.bare_write_cpu_s(size) / (size / 1e9)
    figures.add("CPU of bare pwrite beside it", "s/GB", cluster.name, control)
    resident = cluster.resident_bytes() / 1e6
    figures.add("resident memory after it", "MB", cluster.name, resident, bound="<= 300")


def one_in_flight(figures: harness.Figures, cluster: trio.Trio, topic: str) -> None:
    """A record of 100 B at a time, on one connection to the leader."""
    leader = 1
    cluster.create(topic, [trio.ordered(leader)])
    frame = raw.produce_request(topic, value_bytes=100, acks=-1)
    place, took_us = cluster.nodes[leader].place, []
    with socket.create_connection((place.host, place.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(LATENCIES):
            began = time.perf_counter_ns()
            connection.sendall(frame)
            reply = raw.reply(connection)
            took_us.append((time.perf_counter_ns() - began) / 1e3)
            if raw.produce_error(reply, topic):
                raise RuntimeError(f"{cluster.name}: error {raw.produce_error(reply, topic)}")
    for percent, bound in ((50, "<= 300"), (99, "<= 1000")):
        value = harness.percentile(took_us[WARM_UP:], percent)
        figures.add(f"one in flight, acks=all: p{percent}", "µs", cluster.name, value, bound=bound)


def idle(figures: harness.Figures, cluster: trio.Trio, topic: str) -> None:
    """Partitions to which no client writes."""
    cluster.create(topic, [trio.ordered(number % trio.COUNT + 1) for number in range(IDLE_PARTITIONS)])
    time.sleep(SETTLE_S)
    before_s = cluster.cpu_s()
    time.sleep(IDLE_S)
    share = (cluster.cpu_s() - before_s) / IDLE_S * 100
    what = f"idle, {IDLE_PARTITIONS} partitions: processor, of one core"
    figures.add(what, "%", cluster.name, share, bound="<= 5")


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("replication")
    for repeat in range(options.repeats):
        for start in trio.starts(options):
            with start() as cluster:
                one_in_flight(figures, cluster, f"lone-{repeat}")
                if rdkafka.is_available():
                    throughput(figures, cluster, f"many-{repeat}")
                else:
                    figures.note("no C compiler: the librdkafka rows are left out")
            with start() as cluster:
                idle(figures, cluster, f"idle-{repeat}")
    figures.note("default settings: sparklog.ack.flush=auto; a Java broker keeps what its heap allows")
    figures.report(options)


if __name__ == "__main__":
    main()
