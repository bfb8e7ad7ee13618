"""What `sparklog health` asks a cluster. A section that is refused does not end the others."""

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.cluster import Cluster, Quorum
from sparklog.client.admin.configs import ConfigEntry, ConfigResource
from sparklog.client.admin.storage import LogDir
from sparklog.client.admin.topics import Topic
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.model import NodeId
from sparklog_server.cli.health_checks import (
    NOT_ASKED,
    Facts,
    GroupSample,
    GroupWatch,
    PeerCertificate,
    TopicSettings,
)
from sparklog_server.config.keys import LONG_MAX
from sparklog_server.config.layers import FOLLOWER_RATE, LEADER_RATE, REASSIGNMENT_RATE
from sparklog_server.operations.lag import described_groups
from sparklog_server.operations.surveys import described_by_all, listed_by_all

T = TypeVar("T")

TOPICS_MAX: Final = 2_000
"""Topics whose settings are read; of further ones only the partitions are judged."""
TOPICS_PER_REQUEST: Final = 500
TROUBLED_MAX: Final = 500
"""Topics whose eligible leader replicas are asked for: those with a replica that is not in sync."""
GROUPS_MAX: Final = 500
SECTIONS_S_MAX: Final = 20.0
"""The time after which further sections are not asked for: a broker that hangs costs each its timeout."""
DIGITS_MAX: Final = 19
CERTIFICATE_S_MAX: Final = 3.0
CERTIFICATES_S_MAX: Final = 6.0
RESERVE_KEY: Final = "sparklog.disk.reserve.bytes"
THROTTLES: Final = (LEADER_RATE, FOLLOWER_RATE, REASSIGNMENT_RATE)
_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


class Asking:
    """One look at a cluster; `refused` gathers the sections that failed, with the reason."""

    def __init__(self, admin: Admin, settings: ClientSettings) -> None:
        self._admin = admin
        self._settings = settings
        self.refused: dict[str, str] = {}
        self._silent: set[NodeId] = set()
        self._until_s = time.monotonic() + SECTIONS_S_MAX

    def facts(self, watch_s: float) -> Facts:
        """Everything. Raises SparklogError if the cluster does not answer at all."""
        cluster = self._admin.describe_cluster(include_fenced=True)
        before = self._groups() if watch_s else {}
        begun_s = time.monotonic()
        topics = self._topics()
        quorum, skew_s = self._quorum()
        dirs = self._section("disks", self._log_dirs)
        reserves, throttles = self._broker_settings(cluster)
        settings = self._topic_settings(topics)
        certificates = self._certificates(cluster)
        watched = None
        if watch_s and "groups" not in self.refused:
            time.sleep(max(0.0, begun_s + watch_s - time.monotonic()))
            self._until_s = time.monotonic() + SECTIONS_S_MAX
            after = self._groups()
            if "groups" not in self.refused:
                watched = GroupWatch(time.monotonic() - begun_s, before, after)
        return Facts(
            cluster,
            topics,
            settings,
            quorum,
            dirs,
            reserves,
            skew_s,
            certificates,
            watched,
            self.refused,
            frozenset(self._silent),
            self._section("node states", lambda: self._admin.broker_states(_nodes(cluster, topics))) or {},
            self._section("moves", self._admin.list_reassignments) or {},
            throttles,
        )

    def _section(self, name: str, ask: Callable[[], T]) -> T | None:
        """The answer, or None and the reason in `refused`: also what a broker that is gone makes fail."""
        if time.monotonic() > self._until_s:
            self.refused[name] = f"{NOT_ASKED}: the sections before it took {SECTIONS_S_MAX:.0f} s"
            return None
        try:
            return ask()
        except SparklogError as error:
            self.refused[name] = str(error)
            return None

    def _topics(self) -> tuple[Topic, ...]:
        """Every topic; those with a replica that is not in sync with their eligible leader replicas."""
        listed = self._admin.list_topics(include_internal=True)
        troubled = [
            name
            for name, topic in listed.items()
            if any(one.is_under_replicated or one.leader < 0 for one in topic.partitions)
        ]
        if troubled:
            described = self._section(
                "eligible leaders", lambda: self._admin.describe_topics(troubled[:TROUBLED_MAX])
            )
            listed |= described or {}
        return tuple(listed.values())

    def _quorum(self) -> tuple[Quorum | None, float | None]:
        """The quorum, and how far the clock of its leader is ahead of the one here beyond the round trip."""
        before_s = time.time()
        quorum = self._section("quorum", self._admin.describe_quorum)
        after_s = time.time()
        own = next((v for v in quorum.voters if v.node_id == quorum.leader), None) if quorum else None
        if own is None or own.last_fetch_ms <= 0:
            return quorum, None
        theirs_s = own.last_fetch_ms / 1000
        ahead_s = theirs_s - after_s if theirs_s > after_s else min(0.0, theirs_s - before_s)
        return quorum, ahead_s

    def _log_dirs(self) -> Mapping[NodeId, tuple[LogDir, ...]]:
        answered = described_by_all(self._admin.describe_log_dirs)
        self._silent |= answered.silent
        for node, error in answered.errors.items():
            self.refused[f"disks of broker {node}"] = str(error)
        return answered.found

    def _broker_settings(self, cluster: Cluster) -> tuple[dict[NodeId, int], dict[NodeId, tuple[str, ...]]]:
        """The disk reserve by broker, where Kafka's have none, and the throttles that are set."""
        reserves, throttles = {}, {}
        for node in cluster.nodes:
            if node.is_fenced or node.node_id in self._silent:
                continue
            resource = ConfigResource("broker", str(node.node_id))
            described = self._section(
                "settings of brokers", partial(self._described, [resource], [RESERVE_KEY, *THROTTLES])
            )
            entries = (described or {}).get(resource, {})
            reserve = _number(entries, RESERVE_KEY)
            if reserve is not None:
                reserves[node.node_id] = reserve
            if names := tuple(name for name in THROTTLES if _number(entries, name) not in (None, LONG_MAX)):
                throttles[node.node_id] = names
        return reserves, throttles

    def _topic_settings(self, topics: tuple[Topic, ...]) -> dict[str, TopicSettings]:
        names = [topic.name for topic in topics]
        if len(names) > TOPICS_MAX:
            self.refused["settings"] = f"read of the first {TOPICS_MAX} of {len(names)} topics only"
        found: dict[str, TopicSettings] = {}
        for begin in range(0, min(len(names), TOPICS_MAX), TOPICS_PER_REQUEST):
            part = [ConfigResource("topic", name) for name in names[begin : begin + TOPICS_PER_REQUEST]]
            described = self._section("settings", partial(self._described, part, [_MIN_ISR, _UNCLEAN]))
            for resource, entries in (described or {}).items():
                found[resource.name] = TopicSettings(
                    _number(entries, _MIN_ISR), _value(entries, _UNCLEAN) == "true"
                )
        return found

    def _described(
        self, resources: list[ConfigResource], keys: list[str]
    ) -> Mapping[ConfigResource, Mapping[str, ConfigEntry]]:
        """The settings of those that can be described: a topic may be deleted meanwhile."""
        try:
            return self._admin.describe_resources(resources, keys)
        except ItemsFailed as failed:
            if not failed.results:
                raise
            results: Mapping[ConfigResource, Mapping[str, ConfigEntry]] = failed.results
            return results

    def _groups(self) -> dict[str, GroupSample]:
        def sampled() -> dict[str, GroupSample]:
            listing = listed_by_all(self._admin.list_groups)
            self._silent |= listing.silent
            names = [one.group_id for one in listing.found]
            if len(names) > GROUPS_MAX:
                self.refused["further groups"] = f"{GROUPS_MAX} of {len(names)} are watched"
            described, errors = described_groups(self._admin, names[:GROUPS_MAX], self._silent)
            for who, error in (*listing.errors.items(), *list(errors.items())[:1]):
                what = f"groups of broker {who}" if isinstance(who, int) else f"groups of {who}"
                self.refused[what] = str(error)
            found = {}
            for name, one in described.items():
                committed = sum(row.committed or 0 for row in one.rows)
                found[name] = GroupSample(one.group.state, len(one.group.members), one.lag, committed)
            return found

        return self._section("groups", sampled) or {}

    def _certificates(self, cluster: Cluster) -> tuple[PeerCertificate, ...]:
        if not self._settings.security_protocol.endswith("SSL"):
            return ()
        from sparklog.tls.contexts import client_context

        context = client_context(self._settings.tls)
        until_s = time.monotonic() + CERTIFICATES_S_MAX
        addresses = [(node.host, node.port) for node in cluster.nodes if not node.is_fenced]
        found: list[PeerCertificate] = []
        for host, port in addresses:
            if time.monotonic() >= until_s:
                self.refused["certificates"] = f"{len(found)} of {len(addresses)} brokers answered in time"
                break
            found.append(peer_certificate(host, port, context))
        return tuple(found)


def peer_certificate(host: str, port: int, context: ssl.SSLContext) -> PeerCertificate:
    """The certificate that a server shows. The context must verify: else Python does not parse it."""
    address = f"{host}:{port}"
    try:
        with (
            socket.create_connection((host, port), timeout=CERTIFICATE_S_MAX) as plain,
            context.wrap_socket(plain, server_hostname=host) as stream,
        ):
            ends = str((stream.getpeercert() or {}).get("notAfter"))
        return PeerCertificate(address, ssl.cert_time_to_seconds(ends) - time.time())
    except ssl.SSLCertVerificationError as error:
        return PeerCertificate(address, None, f"it is not accepted: {error.verify_message}")
    except (OSError, ValueError) as error:
        return PeerCertificate(address, None, str(error))


def _nodes(cluster: Cluster, topics: tuple[Topic, ...]) -> list[NodeId]:
    """The nodes that are registered, and those that partitions list."""
    listed = {node for topic in topics for one in topic.partitions for node in one.replicas}
    return sorted(listed.union(one.node_id for one in cluster.nodes))


def _value(entries: Mapping[str, ConfigEntry], key: str) -> str | None:
    entry = entries.get(key)
    return None if entry is None else entry.value


def _number(entries: Mapping[str, ConfigEntry], key: str) -> int | None:
    """A value that is a whole number; None for any other."""
    text = _value(entries, key) or ""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) <= DIGITS_MAX else None
