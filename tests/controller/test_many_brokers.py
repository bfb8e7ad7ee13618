"""Any history of several brokers: what holds of the image and of the controller after every command."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import NodeId
from sparklog_server.controller.elections import acceptable
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
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
    st.sampled_from(("", "", "", "dirs=CF", "dirs=DG", "dirs=X")),
)
commands = st.one_of(
    heartbeats,
    registrations,
    st.builds("torn {} {}".format, st.integers(0, 3), st.one_of(heartbeats, registrations)),
    st.builds("create {} partitions={}".format, st.sampled_from("uv"), st.integers(1, 4)),
    st.builds("place {} assign={}".format, st.sampled_from("wx"), st.just("1,2,3;2,3,1;3,1,2")),
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
    if line.startswith(("assign-dirs", "producer-ids")):
        return NodeId(int(words[1])) in image.brokers
    return True


@examples(150)
@given(st.integers(1, 3), st.lists(commands, min_size=20, max_size=60))
def test_leaders_live_and_epochs_rise_over_any_history(count: int, lines: list[str]) -> None:
    world = World(idle_interval_ms=500)
    for start in NODES[:count]:
        world.run(f"register {start} life=a")
        world.run(f"heartbeat {start}")
    world.run("create t partitions=6")
    blocks = 0
    for line in lines:
        if not _can_run(world, line):
            continue
        before = world.controller.pending
        told = world.run(line)
        if line.startswith("producer-ids") and "NONE" in told[-1]:
            assert f"[{blocks}, +1000)" in told[-1]
            blocks += 1000
        _check_epochs(before, world.controller.pending)
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
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            if partition.leader != -1:
                assert partition.leader in partition.isr
                broker = image.brokers[partition.leader]
                assert not broker.is_fenced or len(image.brokers) == 1


def _check_elected(image: MetadataImage) -> None:
    """With several brokers a partition that can have a leader has one."""
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            if partition.leader == -1 and len(image.brokers) > 1:
                assert not any(map(acceptable(image, partition), partition.isr))


def _check_epochs(before: MetadataImage, after: MetadataImage) -> None:
    """A broker epoch rises with a new incarnation; a partition epoch with every change, and the leader epoch
    with every change of the leader.
    """
    for node_id, broker in after.brokers.items():
        earlier = before.brokers.get(node_id)
        if earlier is not None:
            assert broker.epoch >= earlier.epoch
            assert (broker.epoch > earlier.epoch) == (broker.incarnation_id != earlier.incarnation_id)
    for topic_id, topic in after.topics_by_id.items():
        known = before.topics_by_id.get(topic_id)
        for was, now in zip(known.partitions if known else (), topic.partitions, strict=False):
            _check_change(was, now)


def _check_change(was: PartitionImage, now: PartitionImage) -> None:
    assert now.partition_epoch > was.partition_epoch or now == was
    assert now.leader_epoch > was.leader_epoch or (now.leader, now.leader_epoch) == (
        was.leader,
        was.leader_epoch,
    )
