"""The figures of `sparklog top`, from samples of a cluster at two times.

Kafka's protocol has records per second (from the ends of logs), the lag of groups and the space of disks.
Bytes, readers and the time of requests come from the /metrics of nodes, if their addresses are given.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.storage import LogDir
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError
from sparklog.model import NodeId
from sparklog_server.cli.node_pages import Address, Labels, NodePages, PageFailed, samples
from sparklog_server.operations.brokers import broker_rows, broker_state, partition_counts
from sparklog_server.operations.lag import described_groups
from sparklog_server.operations.rates import PARTITIONS_MAX, Rates, log_ends_of
from sparklog_server.operations.surveys import described_by_all, listed_by_all

GROUPS_MAX: Final = 200
BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
PARTS: Final = ("total", "requestqueue", "local", "remote", "throttle", "responsesend")
_TIMES: Final = {f"kafka_network_requestmetrics_{part}timems": part for part in PARTS}
_COUNT: Final = "kafka_network_requestmetrics_totaltimems_count"
_QUANTILE: Final = "0.99"
_WANTED: Final = (BYTES_IN, BYTES_OUT, _COUNT, *_TIMES)
WITHOUT_HTTP: Final = (
    "bytes, readers and the time of requests are not in Kafka's protocol: name the nodes' metrics by "
    "--http http://HOST:PORT (sparklog.http.listener)"
)


class TopicFigures(NamedTuple):
    """Rates per second of one topic; bytes are None without /metrics."""

    topic: str
    records_in: float
    bytes_in: float | None
    bytes_out: float | None


class RequestFigures(NamedTuple):
    """The 99th percentile, in ms, of an API on a node, of the last minutes, and how it is divided."""

    request: str
    node: str
    per_s: float | None
    total: float
    queue: float
    local: float
    remote: float
    throttle: float
    send: float

    @property
    def slowness(self) -> float:
        """A Fetch waits for records, a member for the other members, by design: that part does not count."""
        is_waiting = self.request.startswith("Fetch") or self.request in ("JoinGroup", "SyncGroup")
        return self.total - self.remote if is_waiting else self.total


class GroupFigures(NamedTuple):
    """A group; members and lag None where they are not known, its growth per second with the first sample."""

    group: str
    state: str
    members: int | None
    lag: int | None
    lag_growth: float | None


class BrokerFigures(NamedTuple):
    """A broker and its disks, in bytes; None where they are not known."""

    broker: int
    address: str
    state: str
    leaders: int
    used: int | None
    usable: int | None
    total: int | None


class Figures(NamedTuple):
    """One look. Rates are None until there are two samples."""

    time_s: float
    cluster: str
    partitions: int
    offline: int
    under_replicated: int
    records_in: float | None
    topics: list[TopicFigures]
    requests: list[RequestFigures]
    groups: list[GroupFigures]
    brokers: list[BrokerFigures]
    notes: list[str]


class Counters:
    """Rates of the counters of one node. A counter that fell began anew: its rate is 0 once."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], float] = {}
        self._sampled_s = 0.0

    def rates(self, values: dict[tuple[str, str], float], now_s: float) -> dict[tuple[str, str], float]:
        """The rates since the last sample; none with the first."""
        elapsed_s, before = now_s - self._sampled_s, self._values
        self._values, self._sampled_s = values, now_s
        if not before or elapsed_s <= 0:
            return {}
        return {key: max(0.0, value - before.get(key, 0.0)) / elapsed_s for key, value in values.items()}


class Sampler:
    """Takes samples, and keeps what the next one is compared with."""

    def __init__(self, settings: ClientSettings, nodes: Iterable[Address]) -> None:
        self._settings = settings
        self._pages = NodePages(settings)
        self._admin: Admin | None = None
        self._nodes = tuple(nodes)
        self._rates = Rates()
        self._counters = {node: Counters() for node in self._nodes}
        self._lags: dict[str, tuple[float, int]] = {}
        self.known: tuple[tuple[str, int], ...] = ()
        """The addresses of the brokers, as of the last sample."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next sample opens new ones."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def sample(self) -> Figures:
        """Ask the cluster and the nodes. Raises SparklogError if the cluster does not answer."""
        if self._admin is None:
            self._admin = Admin.from_settings(self._settings, awaits_silent=False)
        try:
            return self._sampled(self._admin)
        except BaseException:
            self.close()
            raise

    def _sampled(self, admin: Admin) -> Figures:
        notes: list[str] = []
        cluster = admin.describe_cluster(include_fenced=True)
        self.known = tuple((node.host, node.port) for node in cluster.nodes if not node.is_fenced)
        topics = admin.list_topics(include_internal=True)
        dirs: Mapping[NodeId, tuple[LogDir, ...]] = {}
        silent: frozenset[NodeId] = frozenset()
        try:
            answered = described_by_all(admin.describe_log_dirs)
            dirs, silent = answered.found, answered.silent
            notes += [f"no sizes of disks: {error}" for error in answered.errors.values()]
        except BrokerError as error:  # refused
            notes.append(f"no sizes of disks: {error}")
        ends, is_partial = log_ends_of(admin, topics, silent)
        rates = self._rates.sampled(ends, time.monotonic())
        if is_partial:
            notes.append(f"the rates are those of {PARTITIONS_MAX} partitions")
        if silent:
            notes.append(
                f"the rates lack the partitions that brokers {', '.join(map(str, sorted(silent)))} lead"
            )
        bytes_in, bytes_out, requests = self._of_nodes(notes)
        counts = partition_counts(topics)
        return Figures(
            time.time(),
            cluster.cluster_id,
            counts.partitions,
            counts.offline,
            counts.under_replicated,
            None if rates is None else sum(rates.values()),
            _topics(rates or {}, bytes_in, bytes_out),
            sorted(requests, key=lambda one: (-one.slowness, one.request, one.node)),
            self._groups(admin, silent, notes),
            [
                BrokerFigures(
                    row.node,
                    row.address,
                    broker_state(row, silent),
                    row.leaders,
                    row.used,
                    row.usable,
                    row.total,
                )
                for row in broker_rows(cluster, topics, dirs)
            ],
            notes,
        )

    def _groups(self, admin: Admin, silent: frozenset[NodeId], notes: list[str]) -> list[GroupFigures]:
        """The groups, those with the most lag first."""
        try:
            listing = listed_by_all(admin.list_groups)
        except BrokerError as error:  # refused
            notes.append(f"no groups: {error}")
            return []
        notes += [f"groups are missing: {error}" for error in listing.errors.values()]
        states = {one.group_id: one.state for one in listing.found}
        if len(states) > GROUPS_MAX:
            notes.append(f"{GROUPS_MAX} of {len(states)} groups are shown")
        described, errors = described_groups(admin, list(states)[:GROUPS_MAX], silent | listing.silent)
        if errors:
            notes.append(f"no members and lag of {len(errors)} groups: {next(iter(errors.values()))}")
        found = [
            GroupFigures(name, states[name] or "unknown", None, None, None)
            for name in errors
            if name not in described
        ]
        lags: dict[str, tuple[float, int]] = {}
        for name, one in described.items():
            lag, growth, now_s = one.lag, None, time.monotonic()
            if lag is not None:
                lags[name] = now_s, lag
                if name in self._lags and now_s > self._lags[name][0]:
                    growth = (lag - self._lags[name][1]) / (now_s - self._lags[name][0])
            found.append(GroupFigures(name, one.group.state, len(one.group.members), lag, growth))
        self._lags = lags
        return sorted(found, key=lambda one: (-(one.lag or 0), one.group))

    def _of_nodes(
        self, notes: list[str]
    ) -> tuple[dict[str, float] | None, dict[str, float], list[RequestFigures]]:
        """Bytes per second in and out by topic, and the times of requests. Bytes are None without nodes."""
        if not self._nodes:
            notes.append(WITHOUT_HTTP)
            return None, {}, []
        totals: dict[str, dict[str, float]] = {BYTES_IN: {}, BYTES_OUT: {}}
        requests: list[RequestFigures] = []
        is_any = False
        for node in self._nodes:
            try:
                found = samples(self._pages.read(node, "/metrics"), _WANTED)
            except PageFailed as error:
                notes.append(f"no metrics: {error}")
                continue
            is_any = True
            counters = {
                (name, _key(labels, name)): value
                for name in (BYTES_IN, BYTES_OUT, _COUNT)
                for labels, value in found[name]
            }
            rates = self._counters[node].rates(counters, time.monotonic())
            for (name, topic), rate in rates.items():
                if name in totals and topic:  # a sample without a topic is the sum of the others
                    totals[name][topic] = totals[name].get(topic, 0.0) + rate
            requests += _requests(node, found, rates)
        return totals[BYTES_IN] if is_any else None, totals[BYTES_OUT], requests


def _key(labels: Labels, name: str) -> str:
    return labels.get("request" if name == _COUNT else "topic", "")


def _topics(
    records: Mapping[str, float], bytes_in: Mapping[str, float] | None, bytes_out: Mapping[str, float]
) -> list[TopicFigures]:
    """Topics with traffic, the busiest first."""
    names = {*records, *(bytes_in or {}), *bytes_out}
    rows = [
        TopicFigures(
            name,
            records.get(name, 0.0),
            None if bytes_in is None else bytes_in.get(name, 0.0),
            None if bytes_in is None else bytes_out.get(name, 0.0),
        )
        for name in names
    ]
    busy = [row for row in rows if row.records_in or row.bytes_in or row.bytes_out]
    return sorted(
        busy, key=lambda row: (-(row.bytes_in or 0.0) - (row.bytes_out or 0.0), -row.records_in, row.topic)
    )


def _requests(
    node: Address,
    found: Mapping[str, list[tuple[Labels, float]]],
    rates: Mapping[tuple[str, str], float],
) -> list[RequestFigures]:
    """The APIs that a node has served."""
    parts: dict[str, dict[str, float]] = {}
    for name, part in _TIMES.items():
        for labels, value in found[name]:
            if labels.get("quantile") == _QUANTILE and "request" in labels:
                parts.setdefault(labels["request"], {})[part] = value
    return [
        RequestFigures(
            request,
            f"{node.host}:{node.port}",
            rates.get((_COUNT, request)),
            *(of_parts.get(part, 0.0) for part in PARTS),
        )
        for request, of_parts in parts.items()
        if of_parts.get("total", 0.0) > 0
    ]
