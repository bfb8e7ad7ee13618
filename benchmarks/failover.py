"""How long a producer waits when nodes of three die, stop or restart: librdkafka, acks=all, three replicas,
min.insync.replicas=2.

A gap is the time from the fault to the acknowledgement of a record that was sent after it.
"""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Self

from confluent_kafka import Producer

from benchmarks import harness, trio

PARTITIONS = 1_000
SESSION_S = 9.0
"""`broker.session.timeout.ms`, the default of both."""
PAUSE_S = 0.005
OUTSTANDING_MAX = 50
PHASE_S = 0.37
"""Between one run and the next, the fault comes so much later: librdkafka has a timer of one second."""
CLIENT = {
    "acks": "all",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


class Load:
    """A producer that sends records to partition 0, in a thread: one every few milliseconds, or, if it is
    busy, the next ones as soon as earlier ones are acknowledged. `acknowledged` has when each record was sent
    and when it was acknowledged, by `time.perf_counter`.

    Where no request is under way when the leader dies, librdkafka looks for another leader only at the next
    tick of a timer of one second; the failure of a request makes it look at once.
    """

    def __init__(self, servers: str, topic: str, *, is_busy: bool = False, **settings: object) -> None:
        self._producer = Producer({"bootstrap.servers": servers, **CLIENT, **settings})
        self._topic = topic
        self._is_busy = is_busy
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.acknowledged: list[tuple[float, float]] = []
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        trio.wait_until(lambda: len(self.acknowledged) > 100)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def gap_s(self, since_s: float) -> float:
        """Wait for the acknowledgement of a record sent after that moment; seconds since then."""
        trio.wait_until(lambda: self.acknowledged[-1][0] > since_s)
        return next(at_s for sent_s, at_s in self.acknowledged if sent_s > since_s) - since_s

    def longest_gap_s(self) -> float:
        """The longest time between two acknowledgements."""
        times = sorted(at_s for _, at_s in self.acknowledged)
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def _send(self) -> None:
        while not self._is_over.is_set():
            sent_s = time.perf_counter()
            for _ in range(OUTSTANDING_MAX - len(self._producer) if self._is_busy else 1):
                self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._noted(sent_s))
            self._producer.poll(PAUSE_S)
            if not self._is_busy and (rest_s := sent_s + PAUSE_S - time.perf_counter()) > 0:
                time.sleep(rest_s)
        self._producer.flush(30)

    def _noted(self, sent_s: float) -> Callable[[object, object], None]:
        def delivered(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.append((sent_s, time.perf_counter()))
            else:
                self.failed.append(str(error))

        return delivered


def leader_killed(figures: harness.Figures, cluster: trio.Trio, number: int) -> None:
    """Kill the leader, which is not the active controller."""
    controller = cluster.controller()
    what = "leader killed"
    for is_busy in (True, False):
        _killed(figures, cluster, controller % trio.COUNT + 1, number, what, 1.0, is_busy=is_busy)


def controller_killed(figures: harness.Figures, cluster: trio.Trio, number: int) -> None:
    """Kill the leader, which is the active controller as well."""
    what = "leader and controller killed"
    for is_busy in (True, False):
        _killed(figures, cluster, cluster.controller(), number, what, 1.5, is_busy=is_busy)


def _killed(
    figures: harness.Figures,
    cluster: trio.Trio,
    leader: int,
    number: int,
    what: str,
    bound_s: float,
    *,
    is_busy: bool,
) -> None:
    """Kill a leader; a busy producer shows the cluster, one that is not shows librdkafka's timer as well."""
    topic = f"{what.replace(' ', '-')}-{number}-{'busy' if is_busy else 'slow'}"
    cluster.create(topic, [trio.ordered(leader)])
    other = cluster.nodes[leader % trio.COUNT + 1]
    with Load(cluster.bootstrap_servers, topic, is_busy=is_busy) as load:
        time.sleep(number * PHASE_S % 1)
        since_s = _struck(cluster.nodes[leader].kill)
        trio.wait_until(lambda: other.described(topic).partitions[0].leader_id not in (-1, leader))
        led_s = time.perf_counter() - since_s
        gap_s = load.gap_s(since_s)
    figures.add(f"{what}: led again", "s", cluster.name, led_s)
    pace = "busy" if is_busy else "one record in 5 ms"
    bound = f"<= {bound_s}" if is_busy else ""
    figures.add(f"{what}: next ack, {pace}", "s", cluster.name, gap_s, bound=bound)
    cluster.restore(topic)


def leader_stopped(figures: harness.Figures, cluster: trio.Trio, number: int) -> None:
    """Stop the leader, which is not the active controller, by SIGSTOP."""
    controller = cluster.controller()
    leader, topic = controller % trio.COUNT + 1, f"stopped-{number}"
    cluster.create(topic, [trio.ordered(leader)])
    with Load(cluster.bootstrap_servers, topic, **{"socket.timeout.ms": 1_000}) as load:
        since_s = _struck(cluster.nodes[leader].suspend)
        image = cluster.nodes[controller]
        trio.wait_until(lambda: image.described(topic).partitions[0].leader_id not in (-1, leader))
        led_s = time.perf_counter() - since_s
        gap_s = load.gap_s(since_s)
        cluster.nodes[leader].resume()
    what = "leader stopped: led again"
    figures.add(what, "s", cluster.name, led_s, bound=f"<= {SESSION_S + 0.5}")
    what = "leader stopped: next ack"
    figures.add(what, "s", cluster.name, gap_s, bound=f"<= {SESSION_S + 2}")
    cluster.restore(topic)


def many_led(figures: harness.Figures, cluster: trio.Trio, number: int) -> None:
    """Kill a node that leads a third of many partitions."""
    controller = cluster.controller()
    victim, topic = controller % trio.COUNT + 1, f"many-{number}"
    cluster.create(topic, [trio.ordered(one % trio.COUNT + 1) for one in range(PARTITIONS)])
    image = cluster.nodes[controller]

    def is_led() -> bool:
        return all(part.leader_id not in (-1, victim) for part in image.described(topic).partitions)

    since_s = _struck(cluster.nodes[victim].kill)
    trio.wait_until(is_led)
    led_s = time.perf_counter() - since_s
    figures.add(f"node with {PARTITIONS} partitions killed: all led", "s", cluster.name, led_s, bound="<= 2")
    cluster.restore(topic)


def rolling_restart(figures: harness.Figures, cluster: trio.Trio, number: int) -> None:
    """Stop and start each node in turn, under load."""
    topic = f"rolling-{number}"
    cluster.create(topic, [trio.ordered(1)])
    with Load(cluster.bootstrap_servers, topic) as load:
        for node in cluster.nodes.values():
            node.stop()
            cluster.restore(topic)
    figures.add("rolling restart: failed", "records", cluster.name, len(load.failed), bound="<= 0")
    figures.add("rolling restart: longest gap", "s", cluster.name, load.longest_gap_s(), bound="<= 1.0")


def _struck(fault: Callable[[], None]) -> float:
    """Cause the fault; when it began, by `time.perf_counter`."""
    since_s = time.perf_counter()
    fault()
    return since_s


FAULTS = (leader_killed, controller_killed, leader_stopped, rolling_restart, many_led)


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("failover")
    for start in trio.starts(options):
        with start() as cluster:
            for fault in FAULTS:
                for number in range(options.repeats):
                    fault(figures, cluster, number)
    figures.note("each restart waits until all replicas are in sync")
    figures.report(options)


if __name__ == "__main__":
    main()
