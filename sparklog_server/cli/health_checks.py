"""The checks of `sparklog health`: facts of a cluster in, findings out. None of them asks anything."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from sparklog.client.admin.cluster import Cluster, Quorum, Reassignment
from sparklog.client.admin.storage import LogDir
from sparklog.client.admin.topics import Partition, Topic
from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.cluster_status import statuses
from sparklog_server.cli.findings import Finding
from sparklog_server.operations.inert_text import inert_name
from sparklog_server.operations.moves import ClusterFacts, reassigning, remaining_on, replica_sizes

NAMES_MAX: Final = 5
"""Names in one line; the others are counted."""
VOTER_LAG_MAX: Final = 1_000
FREE_SHARE_MIN: Final = 0.15
"""As the alert DiskFillsUp."""
RESERVE_SHARE: Final = 100
RESERVE_BYTES_MAX: Final = 1 << 30
SKEW_S_MAX: Final = 1.0
CERTIFICATE_DAYS_MIN: Final = 30
CERTIFICATE_DAYS_CRITICAL: Final = 7
REPLICAS_MIN: Final = 3
NOT_ASKED: Final = "not asked"
"""Begins the reason of a section that there was no time for."""
REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_SECONDS_PER_DAY: Final = 86_400


class TopicSettings(NamedTuple):
    """The settings of a topic that decide about its safety; None where they are not known."""

    min_isr: int | None
    is_unclean_allowed: bool


class PeerCertificate(NamedTuple):
    """The certificate of a broker: the seconds until its end, or why there was none to see."""

    address: str
    left_s: float | None
    problem: str = ""


class GroupSample(NamedTuple):
    """A group at one time; lag None where it is not known."""

    state: str
    members: int
    lag: int | None
    committed: int


class GroupWatch(NamedTuple):
    """The groups at two times."""

    seconds: float
    before: Mapping[str, GroupSample]
    after: Mapping[str, GroupSample]


class Facts(NamedTuple):
    """What a cluster tells. A section that this user may not see is None, and `refused` has the reason by the
    name of the section; `silent` are the brokers that did not answer.
    """

    cluster: Cluster
    topics: tuple[Topic, ...]
    settings: Mapping[str, TopicSettings]
    quorum: Quorum | None
    dirs: Mapping[NodeId, tuple[LogDir, ...]] | None
    reserves: Mapping[NodeId, int]
    clock_skew_s: float | None
    certificates: tuple[PeerCertificate, ...]
    groups: GroupWatch | None
    refused: Mapping[str, str]
    silent: frozenset[NodeId] = frozenset()
    asked: Mapping[NodeId, str] = MappingProxyType({})
    """The states that were asked of brokers: active, cordoned, drained, decommissioned."""
    moving: Mapping[TopicPartition, Reassignment] = MappingProxyType({})
    throttles: Mapping[NodeId, tuple[str, ...]] = MappingProxyType({})
    """The settings of brokers that throttle replication, by those that have one."""

    def of_moves(self) -> ClusterFacts:
        """What explains why a replica is still where it is."""
        partitions = {
            TopicPartition(topic.name, one.partition): one
            for topic in self.topics
            for one in topic.partitions
        }
        sizes = replica_sizes(self.dirs or {})
        return ClusterFacts(self.cluster.nodes, self.asked, partitions, self.moving, sizes)


def findings(facts: Facts) -> list[Finding]:
    """Every finding; a check that finds nothing wrong has one line too."""
    checks: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
        _partitions,
        _quorum,
        _brokers,
        _unregistered,
        _asked_states,
        _not_empty,
        _moves,
        _throttles,
        _directories,
        _disks,
        _settings,
        _certificates,
        _clock,
        _groups,
    )
    found = [finding for check in checks for finding in check(facts)]
    return found + [
        Finding("UNKNOWN", section, f"not seen: {inert_name(reason)}")
        for section, reason in facts.refused.items()
        if section != "quorum"
    ]


def named(names: Sequence[str]) -> str:
    """The first names, inert, and how many more there are."""
    shown = ", ".join(inert_name(name) for name in names[:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"


def _count(names: Sequence[str], one: str, many: str) -> str:
    """How many there are, what they all are, and their names: the sentence is whole before the names."""
    return f"{len(names)} {one if len(names) == 1 else many}: {named(names)}"


# -- partitions


def _partitions(facts: Facts) -> Iterable[Finding]:
    offline, too_few, behind, eligible = [], [], [], []
    asleep: set[int] = set()
    count = 0
    for topic in facts.topics:
        kept = facts.settings.get(topic.name)
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.partition}"
            if partition.leader < 0:
                offline.append(name)
                asleep.update(partition.replicas)
            elif kept is not None and _is_under_min_isr(partition, kept):
                too_few.append(name)
                asleep.update(set(partition.replicas) - set(partition.isr))
            elif partition.is_under_replicated and not _is_only_added(facts, topic.name, partition):
                behind.append(name)
                asleep.update(set(partition.replicas) - set(partition.isr))
            if partition.eligible_leader_replicas:
                eligible.append(name)
    nodes = ", ".join(map(str, sorted(asleep)))
    if offline:
        yield Finding(
            "CRITICAL",
            "offline partitions",
            _count(offline, "partition has no leader", "partitions have no leader"),
            f"start the brokers that have their replicas ({nodes})",
        )
    if too_few:
        yield Finding(
            "CRITICAL",
            "min ISR",
            _count(
                too_few,
                "partition has too few replicas in sync for acks=all",
                "partitions have too few replicas in sync for acks=all",
            ),
            f"start brokers {nodes}, or wait until they have caught up",
        )
    if behind:
        yield Finding(
            "WARN",
            "in-sync replicas",
            _count(
                behind,
                "partition has a replica that is not in sync",
                "partitions have a replica that is not in sync",
            ),
            f"look at brokers {nodes}: down, slow, or catching up",
        )
    if eligible:
        yield Finding(
            "WARN",
            "eligible leaders",
            _count(
                eligible,
                "partition has a replica outside the ISR that may be the only one with all records",
                "partitions have a replica outside the ISR that may be the only one with all records",
            ),
            "start the brokers of the eligible replicas; do not remove their directories",
        )
    if not (offline or too_few or behind or eligible):
        which = "every replica that is not being added" if facts.moving else "every replica"
        yield Finding("OK", "partitions", f"{count} have a leader, and {which} is in sync")


def _is_only_added(facts: Facts, topic: str, partition: Partition) -> bool:
    """Whether the replicas that are not in sync are those that a reassignment adds."""
    moving = facts.moving.get(TopicPartition(topic, partition.partition))
    return moving is not None and set(partition.replicas) - set(partition.isr) <= set(moving.adding)


def _is_under_min_isr(partition: Partition, settings: TopicSettings) -> bool:
    least = settings.min_isr
    return least is not None and len(partition.isr) < min(least, len(partition.replicas))


# -- nodes


def _quorum(facts: Facts) -> Iterable[Finding]:
    quorum = facts.quorum
    if quorum is None:
        reason = inert_name(facts.refused.get("quorum", "it did not answer"))
        if "AUTHORIZATION_FAILED" in reason or "UNSUPPORTED" in reason or reason.startswith(NOT_ASKED):
            yield Finding("UNKNOWN", "controller", f"not seen: {reason}")
            return
        yield Finding(
            "CRITICAL",
            "controller",
            f"the metadata quorum has no leader: {reason}",
            "start a majority of the controllers, and check that they reach each other",
        )
        return
    voters = {one.node_id for one in quorum.voters}
    rows = [row for row in statuses(facts.cluster, quorum, facts.topics) if row.node in voters]
    troubled = [row for row in rows if "silent" in row.state or "never heard" in row.state]
    for row in troubled:
        yield Finding(
            "WARN",
            "voters",
            f"controller {row.node} is {row.state}: {len(rows) - len(troubled)} of {len(rows)} voters are "
            f"heard",
            f"start node {row.node}, or look at its log and its network",
        )
    for row in rows:
        if row not in troubled and row.lag is not None and row.lag > VOTER_LAG_MAX:
            yield Finding(
                "WARN",
                "voters",
                f"controller {row.node} is {row.lag} records behind the leader",
                "look at its disk and its network: it cannot lead before it has caught up",
            )
    if not troubled:
        yield Finding(
            "OK",
            "controller",
            f"node {quorum.leader} leads a quorum of {len(rows)} in epoch {quorum.leader_epoch}",
        )
    if len(rows) == 1 and len(facts.cluster.nodes) >= REPLICAS_MIN:
        yield Finding(
            "WARN",
            "voters",
            f"the quorum of {len(facts.cluster.nodes)} brokers has one voter",
            f"without node {quorum.leader}, metadata cannot change: format clusters of several nodes with "
            f"three voters",
        )


def _brokers(facts: Facts) -> Iterable[Finding]:
    fenced = [node for node in facts.cluster.nodes if node.is_fenced]
    for node in fenced:
        yield Finding(
            "WARN",
            "brokers",
            f"broker {node.node_id} at {inert_name(node.host)}:{node.port} is fenced: registered, not in "
            f"service",
            "start it, or look at its log: it recovers, hangs, or cannot reach the controller",
        )
    silent = [node for node in facts.cluster.nodes if node.node_id in facts.silent and not node.is_fenced]
    for node in silent:
        yield Finding(
            "WARN",
            "brokers",
            f"broker {node.node_id} at {inert_name(node.host)}:{node.port} does not answer, and is "
            f"not fenced so far",
            "look at its process, its log and its network: it hangs, or cannot be reached from here",
        )
    if not fenced and not silent:
        yield Finding("OK", "brokers", f"{len(facts.cluster.nodes)} in service")


def _unregistered(facts: Facts) -> Iterable[Finding]:
    registered = {one.node_id for one in facts.cluster.nodes}
    listing: dict[NodeId, list[str]] = {}
    for topic in facts.topics:
        for partition in topic.partitions:
            for node in set(partition.replicas) - registered:
                listing.setdefault(node, []).append(f"{topic.name}-{partition.partition}")
    for node, names in sorted(listing.items()):
        if facts.asked.get(node) != "decommissioned":  # what is left on it is told with its state
            yield Finding(
                "WARN",
                "brokers",
                f"broker {node} is not registered; "
                + _count(names, "partition has a replica there", "partitions have a replica there"),
                f"start it, or move its replicas to other nodes: `sparklog cluster decommission {node}`",
            )


def _not_empty(facts: Facts) -> Iterable[Finding]:
    """Nodes that are decommissioned and have replicas; why these stay, if they wait for an operator."""
    asked = sorted(node for node, state in facts.asked.items() if state == "decommissioned")
    moves = facts.of_moves() if asked else None
    for node in asked:
        left = remaining_on(moves, node) if moves is not None else []
        if not left:
            continue
        found = f"node {node} is decommissioned, and has {len(left)} replica{'s' * (len(left) != 1)} left"
        stuck = [one for one in left if one.is_stuck]
        if stuck:
            at, reason, _ = stuck[0]
            found += f"; {len(stuck)} cannot leave: {inert_name(f'{at.topic}-{at.partition}')}: {reason}"
        yield Finding(
            "WARN",
            "node states",
            found,
            f"`sparklog cluster decommission {node}` shows why each is still there"
            + f"; `sparklog cluster activate {node}` ends that" * bool(stuck),
        )


def _asked_states(facts: Facts) -> Iterable[Finding]:
    for row in statuses(facts.cluster, facts.quorum, facts.topics, facts.asked):
        ends = f"`sparklog cluster activate {row.node}` ends that"
        if row.asked == "decommissioned":
            if row.replicas:
                continue  # `_not_empty` has it
            yield Finding(
                "WARN",
                "node states",
                f"node {row.node} is decommissioned, and has no replicas",
                f"stop it: the cluster forgets it by itself; {ends}",
            )
        elif row.asked == "drained":
            left = f"leads {row.leaders} partitions still" if row.leaders else "leads nothing"
            yield Finding("WARN", "node states", f"node {row.node} is drained: it {left}", ends)
        elif row.asked != "active":
            yield Finding(
                "WARN", "node states", f"node {row.node} is {row.asked}: it gets no new replicas", ends
            )


def _moves(facts: Facts) -> Iterable[Finding]:
    if not facts.moving:
        return
    stuck = [one for one in reassigning(facts.of_moves()) if one.is_stuck]
    for at, reason, _ in stuck[:NAMES_MAX]:
        yield Finding(
            "WARN",
            "moves",
            f"{inert_name(f'{at.topic}-{at.partition}')} does not progress: {reason}",
            "start that node, or take the reassignment back: `sparklog partitions reassignments --cancel`",
        )
    if len(stuck) > NAMES_MAX:
        yield Finding(
            "WARN",
            "moves",
            f"{len(stuck) - NAMES_MAX} more partitions do not progress",
            "`sparklog partitions reassignments` shows all of them",
        )
    if not stuck:
        names = [f"{at.topic}-{at.partition}" for at in sorted(facts.moving)]
        yield Finding(
            "OK", "moves", _count(names, "partition is being reassigned", "partitions are being reassigned")
        )


def _throttles(facts: Facts) -> Iterable[Finding]:
    if facts.moving or any(one.is_under_replicated for topic in facts.topics for one in topic.partitions):
        return
    brokers: dict[str, list[NodeId]] = {}
    for node, names in sorted(facts.throttles.items()):
        for name in names:
            brokers.setdefault(name, []).append(node)
    for name, nodes in sorted(brokers.items()):
        which = f"broker{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"
        yield Finding(
            "WARN",
            "throttles",
            f"{name} is set for {which}, and no replica is catching up",
            "delete it (`sparklog configs delete`): it slows the next replica that has to catch up",
        )


# -- disks


def _directories(facts: Facts) -> Iterable[Finding]:
    if facts.dirs is None:
        return
    offline = [one for own in facts.dirs.values() for one in own if one.error is not None]
    for one in offline:
        other = next((own.path for own in facts.dirs[one.node_id] if own.error is None), None)
        where = "" if other is None else f"--broker {one.node_id} --to {inert_name(other)}`"
        meanwhile = f"; until then `sparklog log-dirs move --offline {where} copies its replicas there"
        yield Finding(
            "CRITICAL",
            "log directories",
            f"{inert_name(one.path)} of broker {one.node_id} is offline: {inert_name(str(one.error))}",
            "look for log-directory-offline in its log, replace the disk, then restart the broker"
            + (meanwhile if where else ""),
        )
    if not offline:
        count = sum(map(len, facts.dirs.values()))
        yield Finding("OK", "log directories", f"{count} on {len(facts.dirs)} brokers are online")


def reserve_of(configured: int, total_bytes: int) -> int:
    """The reserve of a directory by `sparklog.disk.reserve.bytes`: -1 is 1 % of the disk, at most 1 GiB."""
    return min(total_bytes // RESERVE_SHARE, RESERVE_BYTES_MAX) if configured < 0 else configured


def _disks(facts: Facts) -> Iterable[Finding]:
    if facts.dirs is None:
        return
    least: tuple[float, str] | None = None
    is_well = True
    for node, own in facts.dirs.items():
        for one in own:
            if one.error is not None or one.total_bytes <= 0:
                continue
            share = one.usable_bytes / one.total_bytes
            where = f"{inert_name(one.path)} of broker {node}"
            text = f"{where} has {one.usable_bytes} of {one.total_bytes} bytes free ({share:.0%})"
            reserve = reserve_of(facts.reserves[node], one.total_bytes) if node in facts.reserves else 0
            if one.usable_bytes <= reserve:
                is_well = False
                yield Finding(
                    "CRITICAL",
                    "disk",
                    f"{text}: the reserve is {reserve}, producers are refused",
                    "delete topics, lower retention.ms or retention.bytes, or grow the file system",
                )
            elif share < FREE_SHARE_MIN:
                is_well = False
                yield Finding(
                    "WARN",
                    "disk",
                    f"{text}; producers are refused from {reserve} on",
                    "lower retention.ms or retention.bytes, or add space",
                )
            least = min(least or (share, where), (share, where))
    if least is not None and is_well:
        yield Finding("OK", "disk", f"the fullest, {least[1]}, has {least[0]:.0%} free")


# -- settings


def _settings(facts: Facts) -> Iterable[Finding]:
    lone, loose, strict, unclean = [], [], [], []
    in_service = sum(not node.is_fenced for node in facts.cluster.nodes)
    for topic in facts.topics:
        if not topic.partitions:
            continue
        replicas = min(len(partition.replicas) for partition in topic.partitions)
        settings = facts.settings.get(topic.name)
        if replicas == 1 and in_service >= REPLICAS_MIN:
            lone.append(topic.name)
        if settings is None or settings.min_isr is None:
            continue
        if replicas >= REPLICAS_MIN and settings.min_isr == 1:
            loose.append(topic.name)
        if 1 < replicas <= settings.min_isr:
            strict.append(topic.name)
        if settings.is_unclean_allowed and replicas > 1:
            unclean.append(topic.name)
    if lone:
        yield Finding(
            "WARN",
            "replication factor",
            _count(lone, "topic has one replica", "topics have one replica"),
            "they are offline with their broker and lost with its disk: create them with "
            "--replication-factor 3",
        )
    if loose:
        yield Finding(
            "WARN",
            "min.insync.replicas",
            _count(
                loose,
                "topic has three replicas or more and answers acks=all with one of them in sync",
                "topics have three replicas or more and answer acks=all with one of them in sync",
            ),
            "sparklog configs set --topic NAME min.insync.replicas=2",
        )
    if strict:
        yield Finding(
            "WARN",
            "min.insync.replicas",
            _count(
                strict,
                "topic needs every replica for acks=all, so one broker that is down stops producers",
                "topics need every replica for acks=all, so one broker that is down stops producers",
            ),
            "set min.insync.replicas below the number of replicas",
        )
    if unclean:
        yield Finding(
            "WARN",
            "unclean elections",
            _count(
                unclean,
                "topic allows a leader that lacks acknowledged records",
                "topics allow a leader that lacks acknowledged records",
            ),
            "set unclean.leader.election.enable=false, unless availability matters more than records",
        )
    if facts.settings and not (lone or loose or strict or unclean):
        yield Finding(
            "OK", "settings", f"replicas and min.insync.replicas of {len(facts.settings)} topics fit"
        )


# -- certificates, clocks, groups


def _certificates(facts: Facts) -> Iterable[Finding]:
    for one in facts.certificates:
        where = f"the certificate of {inert_name(one.address)}"
        if one.left_s is None:
            yield Finding(
                "WARN",
                "certificates",
                f"{where} was not seen: {inert_name(one.problem)}",
                "look at that broker",
            )
        elif one.left_s < CERTIFICATE_DAYS_MIN * _SECONDS_PER_DAY:
            days = int(one.left_s // _SECONDS_PER_DAY)
            yield Finding(
                "CRITICAL" if days < CERTIFICATE_DAYS_CRITICAL else "WARN",
                "certificates",
                f"{where} ends in {days} days",
                "sparklog certificates renew DIR, or replace the key store: brokers read it again by "
                "themselves",
            )
    seen = [one.left_s for one in facts.certificates if one.left_s is not None]
    if seen and min(seen) >= CERTIFICATE_DAYS_MIN * _SECONDS_PER_DAY:
        yield Finding(
            "OK",
            "certificates",
            f"the first of {len(seen)} ends in {int(min(seen) // _SECONDS_PER_DAY)} days",
        )


def _clock(facts: Facts) -> Iterable[Finding]:
    if facts.clock_skew_s is None:
        return
    skew = f"the clock of the active controller is {abs(facts.clock_skew_s):.1f} s " + (
        "ahead of" if facts.clock_skew_s > 0 else "behind"
    )
    if abs(facts.clock_skew_s) > SKEW_S_MAX:
        yield Finding(
            "WARN",
            "clocks",
            f"{skew} that of this machine",
            "run a time service (chrony) on both: retention, transactions and tokens compare times",
        )
    else:
        yield Finding("OK", "clocks", "those of the active controller and this machine agree")


def _groups(facts: Facts) -> Iterable[Finding]:
    watch = facts.groups
    if watch is None:
        return
    is_well = True
    for name, after in watch.after.items():
        before = watch.before.get(name)
        if before is None:
            continue
        group = f"group {inert_name(name)}"
        if before.state in REBALANCING and after.state == before.state:
            is_well = False
            yield Finding(
                "WARN",
                "groups",
                f"{group} was in the state {after.state} at both looks, {watch.seconds:.0f} s apart",
                "look for members that join and leave again, or do not poll (sparklog groups describe)",
            )
        elif before.lag is not None and after.lag is not None and after.lag > before.lag:
            is_well = False
            if after.committed == before.committed:
                what = f"has committed nothing for {watch.seconds:.0f} s, and its lag is {after.lag}"
                remedy = (
                    "look at its members: they are stuck at a record, or commit seldom"
                    if after.members
                    else "it has no members: start its consumers"
                )
            else:
                what = f"falls behind: its lag grew from {before.lag} to {after.lag} in {watch.seconds:.0f} s"
                remedy = "add members up to the number of partitions, or make them faster"
            yield Finding("WARN", "groups", f"{group} {what}", remedy)
    if is_well:
        yield Finding(
            "OK", "groups", f"{len(watch.after)} watched for {watch.seconds:.0f} s: none falls behind"
        )
