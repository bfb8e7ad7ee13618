"""The metrics of the groups and transactions that this node coordinates, with the lag of each group."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from sparklog_server import metrics
from sparklog_server.broker.context import Context
from sparklog_server.broker.metrics.remote_ends import RemoteEnds
from sparklog_server.broker.metrics.report_topics import AT_ONCE, slices
from sparklog_server.metrics import OTHERS, Metric
from sparklog_server.metrics_text import Text, escaped, sample


class _GroupShard(Protocol):
    """What a shard of groups shows."""

    def group_ids(self) -> list[str]: ...
    def counted(self, group_id: str) -> tuple[str, int] | None: ...
    def committed_offsets(self, group_id: str) -> list[tuple[str, int, int]]: ...


def group_report(text: Text, context: Context, ends: RemoteEnds) -> Iterator[str]:
    """The groups of the loaded shards. Groups beyond the bound are summed."""
    report = _Groups(context, ends)
    yield from report.collect()
    yield from report.render(text)


class _Groups:
    def __init__(self, context: Context, ends: RemoteEnds) -> None:
        self._context = context
        self._ends = ends
        self._states: Counter[str] = Counter()
        self._members: list[tuple[str, int]] = []
        # Of each committed offset, in columns as `report_topics.Rows`: the labels as text, the offset, the
        # lag; None while the end of the log is not known.
        self._labels: list[str] = []
        self._committed: list[int] = []
        self._lags: list[int | None] = []
        self._sums: dict[str, tuple[int, int]] = {}
        self._offsets = self._unknown = self._hidden = self._hidden_members = 0
        self._hidden_offset = self._hidden_lag = 0

    def collect(self) -> Iterator[str]:
        settings = self._context.settings.http
        for one in self._context.groups.runtime.serving():
            shard = cast(_GroupShard, one)
            for group_id in shard.group_ids():
                if (counted := shard.counted(group_id)) is None:
                    continue  # it was deleted since
                state, members = counted
                offsets = shard.committed_offsets(group_id)
                self._states[state.lower()] += 1
                self._offsets += len(offsets)
                is_shown = (
                    len(self._members) < settings.metrics_groups_max
                    and len(self._labels) + len(offsets) <= settings.metrics_partitions_max
                )
                if is_shown:
                    self._members.append((group_id, members))
                else:
                    self._hidden += 1
                    self._hidden_members += members
                yield from self._take(group_id, offsets, is_shown=is_shown)

    def _take(self, group_id: str, offsets: list[tuple[str, int, int]], *, is_shown: bool) -> Iterator[str]:
        """Count the committed offsets of one group, topic by topic."""
        group, end_of = f'consumergroup="{escaped(group_id)}"', self._ends.end_of
        for begin in range(0, len(offsets), AT_ONCE):
            by_topic: dict[str, tuple[int, int]] = {}
            topic_before = label = ""
            for topic, partition, offset in offsets[begin : begin + AT_ONCE]:
                if topic != topic_before:
                    topic_before, label = topic, f'{group},topic="{escaped(topic)}",partition="'
                end = end_of(topic, partition)
                lag = None if end is None else end - offset if end > offset else 0
                offset_sum, lag_sum = by_topic.get(topic, (0, 0))
                by_topic[topic] = offset_sum + offset, lag_sum + (lag or 0)
                self._unknown += lag is None
                if is_shown:
                    self._labels.append(f'{label}{partition}"')
                    self._committed.append(offset)
                    self._lags.append(lag)
            self._sum(group, by_topic, is_shown=is_shown)
            yield ""

    def _sum(self, group: str, by_topic: dict[str, tuple[int, int]], *, is_shown: bool) -> None:
        for topic, (offset, lag) in by_topic.items():
            if is_shown:
                key = f'{group},topic="{escaped(topic)}"'
                before, lag_before = self._sums.get(key, (0, 0))
                self._sums[key] = before + offset, lag_before + lag
            else:
                self._hidden_offset += offset
                self._hidden_lag += lag

    def render(self, text: Text) -> Iterator[str]:
        yield text.one(metrics.GROUPS, sum(self._states.values()))
        yield text.one(metrics.GROUP_OFFSETS, self._offsets)
        for state, metric in metrics.GROUPS_BY_STATE.items():
            yield text.one(metric, self._states[state])
        yield text.one(metrics.LAG_UNKNOWN, self._unknown)
        metric = metrics.GROUP_MEMBERS
        yield text.head(metric)
        for members in slices(self._members):
            yield "".join([sample(metric.name, metric.labels, (name,), count) for name, count in members])
        if self._hidden:
            yield sample(metric.name, metric.labels, (OTHERS,), self._hidden_members)
        columns: tuple[tuple[Metric, Sequence[int | None]], ...] = (
            (metrics.GROUP_OFFSET, self._committed),
            (metrics.GROUP_LAG, self._lags),
        )
        for metric, column in columns:
            yield text.head(metric)
            for labels, values in zip(slices(self._labels), slices(column), strict=True):
                rows = zip(labels, values, strict=True)
                yield "".join(
                    [f"{metric.name}{{{row}}} {value}\n" for row, value in rows if value is not None]
                )
        hidden = f'consumergroup="{OTHERS}",topic="{OTHERS}"', (self._hidden_offset, self._hidden_lag)
        sums = [*self._sums.items(), hidden] if self._hidden else list(self._sums.items())
        for metric, at in ((metrics.GROUP_OFFSET_SUM, 0), (metrics.GROUP_LAG_SUM, 1)):
            yield text.head(metric)
            for part in slices(sums):
                yield "".join([f"{metric.name}{{{labels}}} {values[at]}\n" for labels, values in part])


def transaction_report(text: Text, context: Context) -> Iterator[str]:
    """The transactional ids of the loaded shards by state."""
    states: Counter[str] = Counter()
    for shard in context.transactions.shards.runtime.serving():
        for part in slices(list(shard.transactions.values())):  # type: ignore[attr-defined]  # a shard of transactions
            states.update(one.state.name.lower() for one in part)
            yield ""
    yield text.several(metrics.TRANSACTIONS, [((name,), count) for name, count in sorted(states.items())])
