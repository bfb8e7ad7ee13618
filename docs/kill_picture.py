"""The moving picture of a `kill -9` that writing survives: `python -m docs.kill_picture`.

It runs a cluster of three nodes, kills the leader of a partition while a producer writes to it, reads every
record back, and writes what it saw as an animation into docs/images/kill.svg.
"""

import datetime
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import sparklog
from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.local_broker import EmbeddedBroker

PICTURE: Final = Path(__file__).with_name("images") / "kill.svg"
TOPIC: Final = "flights"
SEND_EVERY_S: Final = 0.005
WATCH_EVERY_S: Final = 0.02
KILLED_S: Final = 2.0
RUN_S: Final = 9.0
HOLD_S: Final = 3.0
"""How long the last frame stays before the picture begins again."""
BAR_S: Final = 0.05
"""The time that one bar counts."""

LEFT, WIDTH, FLOOR, TALLEST = 40, 690, 268, 84
INK, SOFT, LEADER, DOWN = "#222", "#e9f5f3", "#a5d8d0", "#f6c7ba"


Acknowledged = dict[bytes, tuple[float, int]]
"""By value of a record, when it was acknowledged, in seconds since the begin, and at which offset."""


class View(NamedTuple):
    """What the metadata said at a moment, in seconds since the begin of the run."""

    at_s: float
    leader: int
    isr: tuple[int, ...]


class Run(NamedTuple):
    """What happened: the times are seconds since its begin."""

    killed: int
    killed_s: float
    acknowledged_s: list[float]
    views: list[View]
    lost: int
    """Acknowledged records that are not at the offset that was acknowledged, or twice in the log."""

    @property
    def pause_s(self) -> float:
        """The longest time between two acknowledgements."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.acknowledged_s))


def record() -> Run:
    """Write for `RUN_S` seconds, kill the leader meanwhile, and compare the log with the acknowledgements."""
    with sparklog.embedded(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        controller = admin.describe_quorum().leader
        # The death of leader and controller at once is another measurement: benchmarks.failover has both.
        replicas = sorted((1, 2, 3), key=lambda node: node == controller)
        admin.create_topics([NewTopic(TOPIC, assignment=[replicas])])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(200):  # connections and metadata are not part of the run
                producer.send(TOPIC, value=b"warm-up %d" % number).result()
            begin = time.perf_counter()
            acknowledged: Acknowledged = {}
            views: list[View] = []
            is_over = threading.Event()
            watcher = threading.Thread(target=_watch, args=(admin, views, begin, is_over))
            watcher.start()
            killed, killed_s = 0, 0.0
            for number in itertools.count():
                due_s = number * SEND_EVERY_S
                if due_s > RUN_S:
                    break
                time.sleep(max(0.0, begin + due_s - time.perf_counter()))
                if not killed and due_s >= KILLED_S:
                    killed = views[-1].leader
                    killed_s = time.perf_counter() - begin
                    os.kill(cluster.pids[killed - 1], signal.SIGKILL)
                _send(producer, b"%d" % number, acknowledged, begin)
            producer.flush()
            is_over.set()
            watcher.join()
        return Run(
            killed,
            killed_s,
            sorted(at_s for at_s, _ in acknowledged.values()),
            views,
            _lost(cluster, acknowledged),
        )


def _send(
    producer: Producer, value: bytes, acknowledged: dict[bytes, tuple[float, int]], begin: float
) -> None:
    delivery = producer.send(TOPIC, value=value)
    delivery.add_done_callback(
        lambda done: acknowledged.update({value: (time.perf_counter() - begin, done.result().offset)})
    )


def _watch(admin: Admin, views: list[View], begin: float, is_over: threading.Event) -> None:
    while not is_over.wait(WATCH_EVERY_S):
        (partition,) = admin.describe_topics([TOPIC])[TOPIC].partitions
        views.append(View(time.perf_counter() - begin, partition.leader, partition.isr))


def _lost(cluster: EmbeddedBroker, acknowledged: Acknowledged) -> int:
    stored: dict[bytes, list[int]] = {}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        while len(stored) < len(acknowledged) and (records := consumer.poll(timeout_ms=5000)):
            for one in records:
                if one.value in acknowledged:
                    stored.setdefault(one.value, []).append(one.offset)
    return sum(stored.get(value) != [offset] for value, (_, offset) in acknowledged.items())


def picture(run: Run) -> str:
    """The run as an SVG that moves by itself; where nothing moves, it shows the end of the run."""
    counts = [0] * (int(RUN_S / BAR_S) + 1)
    for at_s in run.acknowledged_s:
        counts[min(int(at_s / BAR_S), len(counts) - 1)] += 1
    summary = (
        f"{len(run.acknowledged_s)} records acknowledged; lost or stored twice: {run.lost}; "
        f"longest pause: {run.pause_s:.2f} s"
    )
    made = datetime.datetime.now(datetime.UTC).date()
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 770 330" width="770" role="img" '
            'font-family="sans-serif" font-size="13">',
            "<title>kill -9 of the leader while a producer writes</title>",
            f"<desc>Recorded by python -m docs.kill_picture on {made}.</desc>",
            '<rect width="770" height="330" rx="8" fill="#fff"/>',
            *_nodes(run),
            _text(LEFT, 172, f"acknowledged records by {BAR_S * 1000:.0f} ms, acks=all"),
            f'<clipPath id="seen"><rect x="0" y="0" width="770" height="330">{_moving()}</rect></clipPath>',
            '<g clip-path="url(#seen)">',
            *_bars(counts),
            *_kill(run),
            "</g>",
            f'<path d="M{LEFT} {FLOOR} h{WIDTH}" stroke="#1d4e4a"/>',
            *(_text(_x(second), FLOOR + 17, f"{second} s", "middle") for second in range(int(RUN_S) + 1)),
            f"<g>{_discrete('visibility', ((0.0, 'hidden'), (RUN_S, 'visible')))}",
            f"{_text(LEFT, 314, summary)}</g>",
            "</svg>\n",
        ]
    )


def _nodes(run: Run) -> Iterator[str]:
    """A box for each node, with what it is at each moment."""
    for index, node in enumerate((1, 2, 3)):
        x = LEFT + index * 240
        states = _states(run, node)
        fills = [(at_s, _FILLS[state]) for at_s, state in states]
        yield f'<rect x="{x}" y="24" width="210" height="104" rx="6" stroke="#1d4e4a" fill="{fills[-1][1]}">'
        yield f"{_discrete('fill', fills)}</rect>"
        yield _text(x + 105, 62, f"node {node}", "middle")
        for state in sorted({state for _, state in states}):
            seen = [(at_s, "visible" if now == state else "hidden") for at_s, now in states]
            yield f'<g visibility="{seen[-1][1]}">{_discrete("visibility", seen)}'
            yield f"{_text(x + 105, 98, state, 'middle')}</g>"


_FILLS: Final = {"leader": LEADER, "follower, in sync": SOFT, "follower, catches up": "#fff", "killed": DOWN}


def _states(run: Run, node: int) -> list[tuple[float, str]]:
    """The states of a node and when each began; a killed node is down until it is in the ISR again."""
    states = [(0.0, "")]
    was_out = False
    for view in (View(0.0, run.views[0].leader, run.views[0].isr), *run.views):
        is_down = node == run.killed and view.at_s >= run.killed_s and not (was_out and node in view.isr)
        was_out |= node == run.killed and view.at_s >= run.killed_s and node not in view.isr
        if is_down:
            state = "killed"
        elif node == view.leader:
            state = "leader"
        else:
            state = "follower, in sync" if node in view.isr else "follower, catches up"
        if state != states[-1][1]:
            states.append((run.killed_s if is_down else view.at_s, state))
    return states[1:]


def _bars(counts: list[int]) -> Iterator[str]:
    """A bar for each count; one that is cut off has its number."""
    step = WIDTH * BAR_S / RUN_S
    most = 4 * round(BAR_S / SEND_EVERY_S)
    bars = []
    for index, count in enumerate(counts[:-1]):
        left, height = LEFT + index * step, TALLEST * min(count, most) / most
        if count:
            bars.append(f"M{left:.1f} {FLOOR}v-{height:.1f}h{step - 0.8:.1f}V{FLOOR}z")
        if count > most:
            yield _text(round(left + step + 2, 1), FLOOR - TALLEST + 10, f"{count}")
    yield f'<path d="{"".join(bars)}" fill="#1d4e4a"/>'


def _kill(run: Run) -> Iterator[str]:
    x = _x(run.killed_s)
    yield f'<path d="M{x} {FLOOR} V178" stroke="#e76f51" stroke-width="2"/>'
    yield _text(x - 6, 196, f"kill -9 node {run.killed}", "end", fill="#b3402a")


def _moving() -> str:
    """The animation that uncovers the run from left to right."""
    return (
        f'<animate attributeName="width" values="{LEFT};{LEFT + WIDTH};770" '
        f'keyTimes="0;{RUN_S / (RUN_S + HOLD_S):.4f};1" dur="{RUN_S + HOLD_S}s" repeatCount="indefinite"/>'
    )


def _discrete(attribute: str, steps: Sequence[tuple[float, str]]) -> str:
    """An animation of an attribute that has each value from its time on."""
    times = ";".join(f"{at_s / (RUN_S + HOLD_S):.4f}" for at_s, _ in steps)
    values = ";".join(value for _, value in steps)
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" values="{values}" keyTimes="{times}" '
        f'dur="{RUN_S + HOLD_S}s" repeatCount="indefinite"/>'
    )


def _x(at_s: float) -> float:
    return round(LEFT + WIDTH * at_s / RUN_S, 1)


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = INK) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}">{text}</text>'


if __name__ == "__main__":
    run = record()
    assert run.lost == 0, f"{run.lost} acknowledged records are lost or stored twice"
    PICTURE.write_text(picture(run))
    print(PICTURE)
