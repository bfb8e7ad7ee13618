"""The metrics of the groups and transactions that this node coordinates, with the lag of each group."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, cast

from sparklog.model import TopicPartition
from sparklog_server import metrics
from sparklog_server.broker.context import Context
from sparklog_server.broker.remote_ends import RemoteEnds
from sparklog_server.broker.report_topics import AT_ONCE, slices
from sparklog_server.metrics import OTHERS, Metric
from sparklog_server.metrics_text import Text, escaped, sample


class _GroupShard(Protocol):
    """What a shard of groups shows."""

    def group_ids(self) -> list[str]: ...
    def counted(self, group_id: str) -> tuple[str, int] | None: ...
    def committed_offsets(self, group_id: str) -> list[tuple[str, int, int]]: ...


class _Row(NamedTuple):
    """A committed offset with its labels as text; `lag` is None while the end of the log is not known."""

    labels: str
    offset: int
    lag: int | None


class _Sum(NamedTuple):
    labels: str
    offset: int
    lag: int


def group_report(text: Text, context: Context, ends: RemoteEnds) -> Iterator[str]:
    """The groups of the loaded shards. Groups beyond the bound are summed."""
    report = _Groups(context, ends)
    yield from report.collect()
    yield from report.told(text)


class _Groups:
    def __init__(self, context: Context, ends: RemoteEnds) -> None:
        self._context = context
        self._ends = ends
        self._states: Counter[str] = Counter()
        self._members: list[tuple[str, int]] = []
        self._rows: list[_Row] = []
        self._sums: list[_Sum] = []
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
                    and len(self._rows) + len(offsets) <= settings.metrics_partitions_max
                )
                if is_shown:
                    self._members.append((group_id, members))
                else:
                    self._hidden += 1
                    self._hidden_members += members
                yield from self._take(group_id, offsets, is_shown=is_shown)

    def _take(self, group_id: str, offsets: list[tuple[str, int, int]], *, is_shown: bool) -> Iterator[str]:
        group, topic_before, label = f'consumergroup="{escaped(group_id)}"', "", ""
        offset_sum = lag_sum = 0
        for number, (topic, partition, offset) in enumerate(offsets):
            if topic != topic_before:
                if topic_before and is_shown:
                    self._sums.append(_Sum(label, offset_sum, lag_sum))
                topic_before, label = topic, f'{group},topic="{escaped(topic)}"'
                offset_sum = lag_sum = 0
            end = self._ends.end_of(TopicPartition(topic, partition))
            lag = None if end is None else max(0, end - offset)
            self._unknown += lag is None
            offset_sum += offset
            lag_sum += lag or 0
            if is_shown:
                self._rows.append(_Row(f'{label},partition="{partition}"', offset, lag))
            else:
                self._hidden_offset += offset
                self._hidden_lag += lag or 0
            if number % AT_ONCE == AT_ONCE - 1:
                yield ""
        if topic_before and is_shown:
            self._sums.append(_Sum(label, offset_sum, lag_sum))
        yield ""

    def told(self, text: Text) -> Iterator[str]:
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
        yield from self._family(text, metrics.GROUP_OFFSET, [(row.labels, row.offset) for row in self._rows])
        yield from self._family(text, metrics.GROUP_LAG, [(row.labels, row.lag) for row in self._rows])
        hidden = f'consumergroup="{OTHERS}",topic="{OTHERS}"'
        offsets = [(one.labels, one.offset) for one in self._sums]
        lags = [(one.labels, one.lag) for one in self._sums]
        if self._hidden:
            offsets.append((hidden, self._hidden_offset))
            lags.append((hidden, self._hidden_lag))
        yield from self._family(text, metrics.GROUP_OFFSET_SUM, offsets)
        yield from self._family(text, metrics.GROUP_LAG_SUM, lags)

    def _family(self, text: Text, metric: Metric, rows: Sequence[tuple[str, int | None]]) -> Iterator[str]:
        yield text.head(metric)
        for part in slices(rows):
            yield "".join(
                [f"{metric.name}{{{labels}}} {value}\n" for labels, value in part if value is not None]
            )


def transaction_report(text: Text, context: Context) -> Iterator[str]:
    """The transactional ids of the loaded shards by state."""
    states: Counter[str] = Counter()
    for shard in context.transactions.shards.runtime.serving():
        for part in slices(list(shard.transactions.values())):  # type: ignore[attr-defined]  # a shard of transactions
            states.update(one.state.name.lower() for one in part)
            yield ""
    yield text.several(metrics.TRANSACTIONS, [((name,), count) for name, count in sorted(states.items())])
