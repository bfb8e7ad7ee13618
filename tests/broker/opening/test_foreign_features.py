"""A data directory of a cluster with other finalized features: taken if this broker can serve them, else
refused in words that help.
"""

import pytest

from sparklog.record.batch import build_batch, iterate_headers
from sparklog_server.metadata.records import FeatureLevelRecord, encode_value
from tests.broker.world import World

METADATA_LOG = "/data/__cluster_metadata-0"


def with_feature(name: str, level: int) -> World:
    """A node that was stopped, and whose metadata says so much more."""
    world = World(seed=1)
    world.node.start()
    world.settle()
    world.node.kill(is_power_cut=False)
    path = next(f"{METADATA_LOG}/{name}" for name in world.disk.list(METADATA_LOG) if name.endswith(".log"))
    log = world.disk.read(path)
    assert log is not None
    end, epoch = [
        (header.base_offset + header.last_offset_delta + 1, header.leader_epoch)
        for _, header in iterate_headers(log)
    ][-1]
    record = encode_value(FeatureLevelRecord(name=name, feature_level=level))
    world.disk.open(path).append(build_batch([(None, record, (), 0)], base_offset=end, leader_epoch=epoch))
    world.node.start()
    world.settle(5000)
    return world


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("share.version", 1, ("does not know that feature", "downgrade --feature share.version=0")),
        ("group.version", 7, ("supports 0 to 1", "downgrade --feature group.version=1")),
        ("metadata.version", 29, ("supports 30 to 30", "upgrade --feature metadata.version=30")),
    ],
)
def test_a_level_that_cannot_be_served_is_refused_with_feature_level_and_remedy(
    name: str, level: int, said: tuple[str, str]
) -> None:
    world = with_feature(name, level)
    assert world.node.halted is not None
    assert all(
        words in world.node.halted
        for words in (f"{name} is finalized at level {level}", *said, "another directory")
    )


def test_groups_of_kip_848_that_a_kafka_switched_on_are_served() -> None:
    world = with_feature("group.version", 1)
    assert world.node.halted is None
    assert world.node.running.is_ready
