"""The metrics of the cluster, of its active controller and of the metadata quorum."""

from collections.abc import Iterator
from typing import Final

from sparklog.model import Instant, NodeId
from sparklog_server import metrics
from sparklog_server.broker.cluster.links import TO_CONTROLLERS
from sparklog_server.broker.context import Context
from sparklog_server.broker.dynamic_config import replication_rates
from sparklog_server.broker.metrics.report_topics import AT_ONCE
from sparklog_server.config.layers import FOLLOWER_RATE, LEADER_RATE, REASSIGNMENT_RATE
from sparklog_server.metadata.entries import NO_NODE, TopicImage
from sparklog_server.metrics_text import Text, escaped

RATE_SPAN_US: Final = 30_000_000
"""As Kafka's, a rate is one of the last half a minute, or since the report before if that is longer ago."""


class Rate:
    """How fast a number grows, per second, from report to report."""

    def __init__(self) -> None:
        self._before: tuple[int, float] | None = None
        self._between: tuple[int, float] | None = None

    def of(self, value: float, now_us: int) -> float:
        """The rate up to now; 0 in the first report."""
        if self._before is None or self._between is None:
            self._before = self._between = now_us, value
            return 0.0
        if now_us - self._between[0] >= RATE_SPAN_US:
            self._before, self._between = self._between, (now_us, value)
        since_us, before = self._before
        return 0.0 if now_us <= since_us else (value - before) * 1e6 / (now_us - since_us)


class ClusterReport:
    """`leaderless` has the labels of partitions without a leader, if this node is the active controller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._appended = Rate()
        self._sent, self._received = Rate(), Rate()
        self.leaderless: list[str] = []

    def render(self, text: Text) -> Iterator[str]:
        """What the controller and every broker know of the cluster."""
        context, image = self._context, self._context.image
        log = context.quorum.log
        is_active = context.quorum.is_leader
        self.leaderless = []
        offline = imbalanced = 0
        if is_active:
            counts: list[int] = [0, 0]
            yield from self._look(list(image.topics_by_name.values()), counts)
            offline, imbalanced = counts
        brokers = list(image.brokers.values()) if is_active else []
        fenced = sum(one.is_fenced for one in brokers)
        yield text.one(metrics.ACTIVE_CONTROLLERS, int(is_active))
        yield text.one(metrics.ACTIVE_BROKERS, len(brokers) - fenced)
        yield text.one(metrics.FENCED_BROKERS, fenced)
        yield text.one(metrics.GLOBAL_TOPICS, len(image.topics_by_name) if is_active else 0)
        yield text.one(metrics.GLOBAL_PARTITIONS, image.partition_count if is_active else 0)
        yield text.one(metrics.OFFLINE_PARTITIONS, offline)
        yield text.one(metrics.IMBALANCED_PARTITIONS, imbalanced)
        yield text.one(metrics.LAST_APPLIED_OFFSET, log.end_offset - 1)
        yield text.one(metrics.LAST_COMMITTED_OFFSET, context.quorum.high_watermark - 1)
        yield text.one(metrics.UNCLEAN_ELECTIONS, log.unclean_elections if is_active else 0)
        yield text.one(metrics.APPLIED_OFFSET, log.end_offset - 1)
        if is_active:
            name = context.settings.inter_broker_listener_name
            yield text.one(metrics.BROKERS, len(brokers))
            yield text.several(
                metrics.BROKER_INFO,
                [
                    ((str(one.node_id), f"{at.host}:{at.port}" if (at := one.endpoint(name)) else ""), 1)
                    for one in brokers
                ],
            )

    def _look(self, topics: list[TopicImage], counts: list[int]) -> Iterator[str]:
        """Count the partitions without a leader, and those that the preferred replica does not lead."""
        most, looked = self._context.settings.http.metrics_partitions_max, 0
        for topic in topics:
            for index, partition in enumerate(topic.partitions):
                looked += 1
                if looked % (4 * AT_ONCE) == 0:
                    yield ""
                if partition.leader == NO_NODE:
                    counts[0] += 1
                    if len(self.leaderless) < most:
                        self.leaderless.append(f'topic="{escaped(topic.name)}",partition="{index}"')
                elif partition.leader != partition.replicas[0]:
                    counts[1] += 1
        yield ""

    def throttled(self, text: Text, now: Instant) -> Iterator[str]:
        """What replication has passed by its throttles."""
        throttles = self._context.throttles
        sent = 0 if throttles is None else throttles.leader.throttled_bytes
        received = 0 if throttles is None else throttles.follower.throttled_bytes
        yield text.one(metrics.LEADER_THROTTLED_RATE, self._sent.of(sent, now.mono_us))
        yield text.one(metrics.FOLLOWER_THROTTLED_RATE, self._received.of(received, now.mono_us))
        rates = replication_rates(self._context.live.layers)
        by_setting = {
            LEADER_RATE: rates.leader,
            FOLLOWER_RATE: rates.follower,
            REASSIGNMENT_RATE: rates.reassignment,
        }
        yield text.several(
            metrics.THROTTLE_SET,
            [((name,), int(rate is not None)) for name, rate in by_setting.items()],
        )

    def quorum(self, text: Text, idle: float, now: Instant) -> Iterator[str]:
        """What this node of the quorum knows, under both names."""
        quorum = self._context.quorum
        raft, state = quorum.raft, quorum.raft.state
        leading = state.leading
        rate = self._appended.of(quorum.log_end_offset, now.mono_us)
        values: dict[str, float] = {
            "current_leader": int(state.leader_id),
            "current_vote": int(state.election.state.voted_id),
            "current_epoch": int(state.epoch),
            "high_watermark": int(quorum.high_watermark),
            "log_end_offset": int(quorum.log_end_offset),
            "log_end_epoch": int(raft.durable.last_epoch),
            "number_of_voters": len(state.voters.directories),
            "number_of_observers": 0 if leading is None else len(leading.observers(now)),
            "number_unknown_voter_connections": sum(
                node != state.me.node_id and state.voters.endpoint(NodeId(node)) is None
                for node in state.voters.directories
            ),
            "append_records_rate": rate if raft.is_leader else 0.0,
            "fetch_records_rate": 0.0 if raft.is_leader else rate,
            "commit_latency_avg": sum(quorum.commits) / 1000 / max(1, len(quorum.commits)),
            "commit_latency_max": max(quorum.commits, default=0) / 1000,
            "poll_idle_ratio_avg": idle,
        }
        for name, value in values.items():
            for metric in metrics.RAFT[name]:
                yield text.one(metric, value)
        role = ((state.role.value,), 1)
        yield text.several(metrics.RAFT_STATE, [role])
        yield text.several(metrics.RAFT_STATE_INFO, [role])
        traffic = [self._context.links.traffic[purpose] for purpose in sorted(TO_CONTROLLERS)]
        sums = {
            "incoming_byte": sum(one.received_bytes for one in traffic),
            "outgoing_byte": sum(one.sent_bytes for one in traffic),
            "request": sum(one.requests for one in traffic),
            "response": sum(one.responses for one in traffic),
        }
        for name, value in sums.items():
            for metric in metrics.RAFT_CHANNEL[name]:
                yield text.one(metric, value)
