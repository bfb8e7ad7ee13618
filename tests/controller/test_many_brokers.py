"""Any history of several brokers: what holds of the image and of the controller after every command."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import NodeId
from sparklog.wire.schema import Message
from sparklog_server.controller.elections import acceptable, has_elr
from sparklog_server.metadata.entries import PartitionImage, TopicImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import ClearElrRecord, PartitionChangeRecord
from tests.controller.world import World
from tests.properties import examples

NODES = ("1", "2", "3", "4")
node = st.sampled_from(NODES)
heartbeats = st.builds(
    "heartbeat {} {} {}".format,
    node,
    st.sampled_from(("", "", "", "want-fence", "want-shut-down")),
    st.sampled_from(("", "", "", "seen=0", "offline=C", "offline=DE", "cordoned=D", "cordoned=", "epoch=3")),
)
registrations = st.builds(
    "register {} life={} {}".format,
    node,
    st.sampled_from("abc"),
    st.sampled_from(("", "", "stopped-cleanly", "stopped-cleanly", "dirs=CF", "dirs=DG", "dirs=X")),
)
commands = st.one_of(
    heartbeats,
    registrations,
    st.builds("torn {} {}".format, st.integers(0, 3), st.one_of(heartbeats, registrations)),
    st.builds("create {} partitions={}".format, st.sampled_from("uv"), st.integers(1, 4)),
    st.builds(
        "place {} assign=1,2,3;2,3,1;3,1,2 {}".format,
        st.sampled_from("wx"),
        st.sampled_from(
            (
                "",
                "config.min.insync.replicas=2",
                "config.min.insync.replicas=3",
                "config.unclean.leader.election.enable=true",
            )
        ),
    ),
    st.builds(
        "alter-isr {} {} {}-{}={}".format,
        node,
        st.sampled_from(("", "", "recovering", "v2")),
        st.sampled_from("tuwx"),
        st.integers(0, 3),
        st.lists(node, min_size=1, max_size=3).map(",".join),
    ),
    st.builds(
        "config {} {}".format,
        st.sampled_from(("w", "x", "cluster")),
        st.sampled_from(
            (
                "min.insync.replicas=2",
                "min.insync.replicas=",
                "unclean.leader.election.enable=true",
                "unclean.leader.election.enable=",
            )
        ),
    ),
    st.builds("elect {}".format, st.sampled_from(("preferred", "unclean"))),
    st.builds("delete {}".format, st.sampled_from("tuvwx")),
    st.builds("grow {} count={}".format, st.sampled_from("tuv"), st.integers(2, 6)),
    st.builds("unregister {}".format, node),
    st.builds("assign-dirs {} t-0={}".format, node, st.sampled_from("BCDEFG")),
    st.builds("producer-ids {}".format, node),
    st.builds("heartbeat-lost {}".format, node),
    st.builds("probes {}={}".format, node, st.sampled_from(("refused", "refused", "answered", "timed-out"))),
    st.builds("advance {}".format, st.sampled_from(("1ms", "50ms", "300ms", "3", "9"))),
    st.builds("lead {}".format, node),
)


def _can_run(world: World, line: str) -> bool:
    """Whether the brokers and the topic that the harness itself looks up exist."""
    image = world.controller.pending
    words = line.removeprefix("torn ").split()
    if line.startswith("place"):
        brokers = [image.brokers.get(NodeId(one)) for one in (1, 2, 3)]
        is_unknown = words[1] not in image.topics_by_name
        return is_unknown and all(broker is not None and broker.is_active for broker in brokers)
    if line.startswith("config"):
        return words[1] == "cluster" or words[1] in image.topics_by_name
    if line.startswith(("assign-dirs", "producer-ids")):
        return NodeId(int(words[1])) in image.brokers
    return True


@examples(150)
@given(st.integers(1, 3), st.lists(commands, min_size=20, max_size=60), st.booleans())
def test_leaders_live_and_epochs_rise_over_any_history(count: int, lines: list[str], elr: bool) -> None:
    world = World(idle_interval_ms=500)
    if not elr:
        world.run("features downgrade eligible.leader.replicas.version=0")
    for start in NODES[:count]:
        world.run(f"register {start} life=a")
        world.run(f"heartbeat {start}")
    world.run("create t partitions=6")
    blocks = 0
    for line in lines:
        if not _can_run(world, line):
            continue
        before = world.controller.pending
        world.appended.clear()
        told = world.run(line)
        if line.startswith("producer-ids") and "NONE" in told[-1]:
            assert f"[{blocks}, +1000)" in told[-1]
            blocks += 1000
        _check_epochs(before, world.controller.pending, world.appended)
        _check_leaders(world.controller.pending)
    world.run("lead")
    world.run("advance 1ms")
    _check_leaders(world.controller.pending)
    _check_elected(world.controller.pending)
    deadline = world.controller.deadline()
    assert deadline is None or deadline > world.now.mono_us


def _check_leaders(image: MetadataImage) -> None:
    """A leader is in sync and registered; with several brokers it is not fenced."""
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            _check_eligible(image, topic, partition)
            assert set(partition.isr) <= set(partition.replicas)
            if partition.leader != -1:
                assert partition.leader in partition.isr
                broker = image.brokers[partition.leader]
                assert not broker.is_fenced or len(image.brokers) == 1


def _check_eligible(image: MetadataImage, topic: TopicImage, partition: PartitionImage) -> None:
    """Eligible leader replicas exist only where the feature is enabled and the ISR is below the minimum;
    without the feature the ISR is never empty.
    """
    eligible = partition.eligible_leader_replicas
    if not has_elr(image):
        assert partition.isr
        assert (eligible, partition.last_known_elr) == ((), ())
        return
    cluster = image.broker_config("")["min.insync.replicas"]
    min_isr = int(image.topic_config(topic.name).get("min.insync.replicas", cluster))
    assert set(eligible) <= set(partition.replicas) - set(partition.isr)
    assert not eligible or len(partition.isr) < min(min_isr, len(partition.replicas))
    assert len(partition.last_known_elr) <= (partition.leader == -1)


def _check_elected(image: MetadataImage) -> None:
    """With several brokers a partition that can have a leader has one."""
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            if partition.leader == -1 and len(image.brokers) > 1:
                valid = partition.isr or partition.eligible_leader_replicas or partition.last_known_elr
                assert not any(map(acceptable(image, partition), valid))


def _check_epochs(before: MetadataImage, after: MetadataImage, records: Sequence[Message]) -> None:
    """A broker epoch rises with a new incarnation, and with one that brings a log directory which was not
    there; a partition epoch by one with every record, and the leader epoch with every change of the leader. A
    broker that joins an ISR is active.
    """
    changes = Counter(
        (one.topic_id, one.partition_id) for one in records if isinstance(one, PartitionChangeRecord)
    )
    has_cleared = any(isinstance(one, ClearElrRecord) for one in records)
    for node_id, broker in after.brokers.items():
        earlier = before.brokers.get(node_id)
        if earlier is not None:
            assert broker.epoch >= earlier.epoch
            is_same = broker.incarnation_id == earlier.incarnation_id
            has_all = set(broker.directories) <= set(earlier.directories)
            assert (broker.epoch > earlier.epoch) == (not (is_same and has_all))
    for topic_id, topic in after.topics_by_id.items():
        known = before.topics_by_id.get(topic_id)
        pairs = zip(known.partitions if known else (), topic.partitions, strict=False)
        for index, (was, now) in enumerate(pairs):
            _check_change(was, now)
            count = changes[topic_id, index]
            assert now.partition_epoch - was.partition_epoch in (count, count + has_cleared)
            joined = set(now.isr) - set(was.isr)
            assert all(after.brokers[one].is_active for one in joined)


def _check_change(was: PartitionImage, now: PartitionImage) -> None:
    assert now.partition_epoch > was.partition_epoch or now == was
    assert now.leader_epoch > was.leader_epoch or (now.leader, now.leader_epoch) == (
        was.leader,
        was.leader_epoch,
    )
