"""The metrics of topics and partitions: those that the JMX exporter and kafka_exporter have.

Topics beyond the bounds, in the order in which they came to this node, are summed under one label value. A
series is written by the node that leads its partition; one about the replica itself by each node that has it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar, overload

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId
from sparklog_server import metrics
from sparklog_server.broker.context import Context
from sparklog_server.broker.metrics.reassignment_progress import ReassignmentProgress
from sparklog_server.metadata.entries import NO_NODE, PartitionImage
from sparklog_server.metrics import OTHERS, Metric
from sparklog_server.metrics_text import Text, escaped, sample
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.traffic import NodeTraffic, TopicTraffic

AT_ONCE: Final = 100
"""The rows that are written at once: about 0.05 ms."""
_OTHERS_LABELS: Final = f'topic="{OTHERS}",partition="{OTHERS}"'


class Row(NamedTuple):
    """A partition here with its labels as text, and its entry of the image."""

    labels: str
    partition: Partition
    image: PartitionImage


class LedRow(NamedTuple):
    """A partition that this node leads."""

    labels: str
    partition: Partition
    image: PartitionImage
    leader: LeaderReplica


_Labelled = TypeVar("_Labelled", Row, LedRow)
_One = TypeVar("_One")


class Rows(Sequence[_Labelled]):
    """Rows that exist while they are read: thousands of objects that live for a report would have Python's
    collector walk them in between, for most of a millisecond.
    """

    def __init__(self, kind: type[_Labelled]) -> None:
        self._columns: tuple[list[object], ...] = tuple([] for _ in kind._fields)
        # Without a call of a Python function for each row.
        self._make: Callable[[tuple[object, ...]], _Labelled] = partial(tuple.__new__, kind)

    def add(self, *values: object) -> None:
        """Add a row of these fields."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, at: int) -> _Labelled: ...
    @overload
    def __getitem__(self, at: slice) -> list[_Labelled]: ...
    def __getitem__(self, at: int | slice) -> _Labelled | list[_Labelled]:
        if isinstance(at, int):
            return self._make(tuple([column[at] for column in self._columns]))
        return list(map(self._make, zip(*[column[at] for column in self._columns], strict=True)))


class HiddenTopics:
    """The topics without series of their own, and the sums of their counters, which never go down: a topic
    stays hidden until it leaves this node, and what it counted stays in `past`.
    """

    def __init__(self) -> None:
        self.has_any = False  # whether a topic is hidden, or was
        self.past = TopicTraffic()
        self._counted: dict[str, TopicTraffic] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._counted

    def hide(self, topic: str, traffic: NodeTraffic) -> None:
        """This topic has no series of its own from now on."""
        self.has_any, counted = True, traffic.of(topic)
        before = self._counted.get(topic, counted)
        if before is not counted:  # it has left, and come again during this report
            self.past.add(before)
        self._counted[topic] = counted

    def follow(self, traffic: NodeTraffic) -> Iterator[str]:
        """Notice the topics that have left; one of the same name that came since is another."""
        for number, (topic, one) in enumerate(list(self._counted.items())):
            if traffic.topics.get(topic) is not one:
                self.past.add(one)
                del self._counted[topic]
            if number % AT_ONCE == AT_ONCE - 1:
                yield ""

    def sums(self, into: TopicTraffic) -> Iterator[str]:
        """Add their counters to `into`."""
        into.add(self.past)
        for number, one in enumerate(list(self._counted.values())):
            into.add(one)
            if number % AT_ONCE == AT_ONCE - 1:
                yield ""


class Shown:
    """The partitions of this node at the beginning of a report. `rows` have series of their own, `others` are
    summed; `topics` are the names with series of their own.
    """

    def __init__(self, hidden: HiddenTopics) -> None:
        self.hidden = hidden
        self.rows = Rows(Row)
        self.others = Rows(Row)
        self.topics: dict[str, None] = {}
        self.hidden_topics = 0
        self.counted: list[tuple[str, int]] = []  # the partitions of each topic that this node tells of
        self.led = Rows(LedRow)
        self.led_others = Rows(LedRow)

    def collect(self, context: Context) -> Iterator[str]:
        """Look at every partition."""
        settings, image, node_id = context.settings.http, context.image, NodeId(context.settings.node_id)
        rows_left, traffic = settings.metrics_partitions_max, context.partitions.traffic
        yield from self.hidden.follow(traffic)
        for name, partitions in list(context.partitions.by_topic.items()):
            known = image.topics_by_name.get(name)
            if known is None:
                continue
            is_shown = (
                name not in self.hidden
                and len(self.topics) < settings.metrics_topics_max
                and len(partitions) <= rows_left
            )
            if is_shown:
                rows_left -= len(partitions)
                self.topics[name] = None
            else:
                self.hidden_topics += 1
                self.hidden.hide(name, traffic)
            if next((one.leader for one in known.partitions if one.leader != NO_NODE), NO_NODE) == node_id:
                self.counted.append((name if is_shown else OTHERS, len(known.partitions)))
            for index, partition in enumerate(list(partitions.values())):
                if index % AT_ONCE == AT_ONCE - 1:
                    yield ""
                self._add(name, partition, known.partitions, is_shown=is_shown)
            yield ""

    def _add(
        self, name: str, partition: Partition, images: tuple[PartitionImage, ...], *, is_shown: bool
    ) -> None:
        number = partition.topic_partition.partition
        if number >= len(images):
            return
        labels = f'topic="{escaped(name)}",partition="{number}"'
        leader = partition.leader
        (self.rows if is_shown else self.others).add(labels, partition, images[number])
        if leader is not None:
            (self.led if is_shown else self.led_others).add(labels, partition, images[number], leader)


def _min_isr(row: LedRow) -> int:
    return min(row.partition.in_sync_min, len(row.image.replicas))


def _is_under_replicated(row: LedRow) -> int:
    return int(len(row.leader.isr.committed) < len(row.image.replicas))


def _is_under_min_isr(row: LedRow) -> int:
    return int(len(row.leader.isr.committed) < _min_isr(row))


def _is_at_min_isr(row: LedRow) -> int:
    return int(len(row.leader.isr.committed) == _min_isr(row))


def _last_stable_lag(row: LedRow) -> int:
    return max(0, row.partition.high_watermark - row.partition.last_stable_offset)


OF_REPLICAS: Final[tuple[tuple[Metric, Callable[[Row], int], bool], ...]] = (
    (metrics.LOG_SIZE, lambda row: row.partition.log.size, True),
    (metrics.LOG_START_OFFSET, lambda row: row.partition.log.log_start_offset, False),
    (metrics.LOG_END_OFFSET, lambda row: row.partition.log.log_end_offset, False),
    (metrics.LOG_SEGMENTS, lambda row: len(row.partition.log.segments.all), True),
)
"""Metrics of replicas, each with whether the sum of the others has a meaning."""

OF_LEADERS: Final[tuple[tuple[Metric, Callable[[LedRow], int], bool], ...]] = (
    (metrics.PARTITION_UNDER_REPLICATED, _is_under_replicated, True),
    (metrics.PARTITION_IN_SYNC, lambda row: len(row.leader.isr.committed), True),
    (metrics.PARTITION_REPLICAS, lambda row: len(row.image.replicas), True),
    (metrics.PARTITION_UNDER_MIN_ISR, _is_under_min_isr, True),
    (metrics.PARTITION_AT_MIN_ISR, _is_at_min_isr, True),
    (metrics.LAST_STABLE_OFFSET_LAG, _last_stable_lag, True),
    (metrics.CURRENT_OFFSET, lambda row: row.partition.high_watermark, True),
    (metrics.OLDEST_OFFSET, lambda row: row.partition.log.log_start_offset, True),
    (metrics.LEADER_IS_PREFERRED, lambda row: int(row.image.replicas[0] == row.image.leader), True),
    (metrics.TOPIC_REPLICAS, lambda row: len(row.image.replicas), True),
    (metrics.TOPIC_IN_SYNC, lambda row: len(row.leader.isr.committed), True),
    (metrics.TOPIC_UNDER_REPLICATED, _is_under_replicated, True),
)
"""Metrics of partitions that this node leads."""


def partition_report(text: Text, context: Context, shown: Shown, leaderless: list[str]) -> Iterator[str]:
    """Every family with a line for each partition. `leaderless` has the labels of partitions without a leader
    of which this node tells, as the active controller.
    """
    for metric, value, is_summed in OF_REPLICAS:
        yield from _family(text, metric, value, shown.rows, shown.others if is_summed else [])
    for metric, of_led, is_summed in OF_LEADERS:
        yield from _family(text, metric, of_led, shown.led, shown.led_others if is_summed else [])
    metric, node_id = metrics.PARTITION_LEADER, context.settings.node_id
    yield text.head(metric)
    for led in slices(shown.led):
        yield "".join([f"{metric.name}{{{row.labels}}} {node_id}\n" for row in led])
    yield "".join([f"{metric.name}{{{labels}}} -1\n" for labels in leaderless])
    metric = metrics.TOPIC_PARTITIONS
    yield text.head(metric)
    hidden = sum(count for name, count in shown.counted if name == OTHERS)
    for counted in slices([one for one in shown.counted if one[0] != OTHERS]):
        yield "".join([sample(metric.name, metric.labels, (name,), count) for name, count in counted])
    if hidden:
        yield sample(metric.name, metric.labels, (OTHERS,), hidden)


def slices(rows: Sequence[_One]) -> Iterator[Sequence[_One]]:
    """These rows, some at a time."""
    for begin in range(0, len(rows), AT_ONCE):
        yield rows[begin : begin + AT_ONCE]


def _family(
    text: Text,
    metric: Metric,
    value: Callable[[_Labelled], int],
    rows: Sequence[_Labelled],
    others: Sequence[_Labelled],
) -> Iterator[str]:
    name = metric.name
    yield text.head(metric)
    for part in slices(rows):
        yield "".join([f"{name}{{{row.labels}}} {value(row)}\n" for row in part])
    if others:
        total = 0
        for part in slices(others):
            total += sum(map(value, part))
            yield ""
        yield f"{name}{{{_OTHERS_LABELS}}} {total}\n"


_TRAFFIC: Final = (
    (metrics.MESSAGES_IN, "records_in"),
    (metrics.BYTES_IN, "bytes_in"),
    (metrics.BYTES_OUT, "bytes_out"),
    (metrics.BYTES_REJECTED, "bytes_rejected"),
    (metrics.PRODUCE_REQUESTS, "produce_requests"),
    (metrics.FAILED_PRODUCE_REQUESTS, "failed_produce_requests"),
    (metrics.FETCH_REQUESTS, "fetch_requests"),
    (metrics.FAILED_FETCH_REQUESTS, "failed_fetch_requests"),
)


def traffic_report(text: Text, context: Context, shown: Shown) -> Iterator[str]:
    """The counters of topics, and their sums over all topics, those that left this node included."""
    traffic = context.partitions.traffic
    total, hidden = TopicTraffic(), TopicTraffic()
    total.add(traffic.past)
    listed: list[tuple[str, TopicTraffic]] = []
    for number, (name, one) in enumerate(list(traffic.topics.items())):
        total.add(one)
        if name in shown.topics:
            listed.append((f'topic="{escaped(name)}"', one))
        if number % AT_ONCE == AT_ONCE - 1:
            yield ""
    if shown.hidden.has_any:
        yield from shown.hidden.sums(hidden)
        listed.append((f'topic="{OTHERS}"', hidden))
    for metric, field in _TRAFFIC:
        name = metric.name
        yield f"{text.head(metric)}{name} {getattr(total, field)}\n"
        for part in slices(listed):
            yield "".join([f"{name}{{{labels}}} {getattr(one, field)}\n" for labels, one in part])
    yield text.one(metrics.REPLICATION_BYTES_IN, total.replication_bytes_in)
    yield text.one(metrics.REPLICATION_BYTES_OUT, total.replication_bytes_out)
    yield text.one(metrics.REASSIGNMENT_BYTES_IN, total.reassignment_bytes_in)
    yield text.one(metrics.REASSIGNMENT_BYTES_OUT, total.reassignment_bytes_out)


def replica_report(
    text: Text, context: Context, shown: Shown, reassignments: ReassignmentProgress, now: Instant
) -> Iterator[str]:
    """The sums over the partitions of this node, and what waits for them."""
    under_replicated = under_min = at_min = offline = 0
    parked = watching = 0
    for part in chain(slices(shown.led), slices(shown.led_others)):
        for _, partition, image, leader in part:
            in_sync, replicas = len(leader.isr.committed), len(image.replicas)
            least = partition.in_sync_min if partition.in_sync_min < replicas else replicas
            under_replicated += in_sync < replicas
            under_min += in_sync < least
            at_min += in_sync == least
            if image.adding_replicas or image.removing_replicas:
                reassignments.look(partition, image, leader)
            parked += len(partition.purgatory.heap)
            watching += len(partition.purgatory.watchers)
        yield ""
    for some in chain(slices(shown.rows), slices(shown.others)):
        offline += sum(row.partition.error is ErrorCode.KAFKA_STORAGE_ERROR for row in some)
        yield ""
    rules = context.partitions.rules
    yield text.one(metrics.LEADER_COUNT, len(shown.led) + len(shown.led_others))
    yield text.one(metrics.PARTITION_COUNT, len(shown.rows) + len(shown.others))
    yield text.one(metrics.OFFLINE_REPLICAS, offline + len(context.partitions.offline))
    yield text.one(metrics.UNDER_REPLICATED, under_replicated)
    yield text.one(metrics.UNDER_MIN_ISR, under_min)
    yield text.one(metrics.AT_MIN_ISR, at_min)
    yield from reassignments.render(text, now)
    yield text.one(metrics.ISR_EXPANDS, rules.expands)
    yield text.one(metrics.ISR_SHRINKS, rules.shrinks)
    yield text.one(metrics.FAILED_ISR_UPDATES, rules.refused)
    yield text.several(metrics.PURGATORY_SIZE, ((("Produce",), parked), (("Fetch",), watching)))
    directories = context.partitions.directories
    yield text.one(metrics.OFFLINE_DIRECTORIES, sum(one.error is not None for one in directories))
    yield text.several(
        metrics.DIRECTORY_OFFLINE, [((one.log_dir.path,), int(one.error is not None)) for one in directories]
    )
    yield text.several(metrics.UNSYNCED, [((one.log_dir.path,), one.unsynced_bytes) for one in directories])
    yield text.several(
        metrics.DIRECTORY_FULL, [((one.log_dir.path,), int(one.room.is_full)) for one in directories]
    )
    yield text.several(
        metrics.DIRECTORY_RESERVE, [((one.log_dir.path,), one.room.reserve_bytes) for one in directories]
    )
