"""A broker refuses to start when a directory, or the file that says whose it is, has vanished: by name,
and without a change.
"""

import pytest

from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.log.directory.log_dir import DirectoryRefused
from sparklog_server.simulation.disk import SimulatedDisk
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, fetched, produce

TWO = {"metadata.log.dir": "/m", "log.dirs": "/a,/b"}


def served(*, is_clean: bool, **more: str) -> World:
    """A node that kept a record in each of two partitions, stopped."""
    world = World(1, **(TWO | more))
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert world.create(client, "t", 2) == 0
    for partition in range(2):
        world.ask(
            client,
            produce("t", world.batch(b"x"), acks=ACKS_ALL, partition=partition),
            PRODUCE_BY_NAME,
            ProduceResponse,
        )
    world.node.stop() if is_clean else world.node.kill()
    return world


def everything(disk: SimulatedDisk, *roots: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for root in roots:
        for name in disk.list(root):
            path = f"{root}/{name}"
            inside = disk.list(path)
            found |= everything(disk, path) if inside else {path: disk.read(path)}
    return found


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["/m", "/m/__cluster_metadata-0"])
def test_without_its_metadata_log_no_new_cluster_is_begun_over_the_data_of_the_old(
    *, is_clean: bool, lost: str
) -> None:
    world = served(is_clean=is_clean)
    world.disk.remove(lost)
    before = everything(world.disk, "/m", "/a", "/b")
    with pytest.raises(
        DirectoryRefused,
        match=r"/m/__cluster_metadata-0: the metadata log is missing, but /[abm] holds .*mount or restore",
    ):
        world.node.start()
    assert everything(world.disk, "/m", "/a", "/b") == before


def test_a_cluster_id_in_a_data_directory_is_enough_to_miss_the_metadata_log() -> None:
    disk_only = World(1, **TWO)
    disk_only.node.start()
    disk_only.settle()
    disk_only.node.kill()
    disk_only.disk.remove("/m")
    with pytest.raises(
        DirectoryRefused, match=r"but /a holds a meta\.properties of cluster \S+\. Without it"
    ):
        disk_only.node.start()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("path", ["/m", "/a", "/b"])
def test_a_lost_meta_properties_is_missed_by_name_and_not_made_anew(*, is_clean: bool, path: str) -> None:
    world = served(is_clean=is_clean)
    content = world.disk.read(f"{path}/meta.properties") or b""
    world.disk.remove(f"{path}/meta.properties")
    with pytest.raises(
        DirectoryRefused,
        match=rf"^{path}/meta\.properties: the file is missing, but .*sparklog log repair {path}`",
    ):
        world.node.start()
    assert world.disk.read(f"{path}/meta.properties") is None
    world.node.kill()
    world.disk.write(f"{path}/meta.properties", content)
    world.node.start()
    world.settle()
    client = world.node.connect()
    for partition in range(2):
        assert fetched(
            world.ask(client, fetch("t", 0, partition=partition, max_wait_ms=0), 12, FetchResponse)
        ) == (0, [b"x"])


def test_an_empty_disk_in_place_of_a_data_directory_is_formatted_and_the_metadata_log_begins_once() -> None:
    world = served(is_clean=True)
    assert len([line for line in world.node.trace if line.startswith("metadata-log-begins")]) == 1
    world.disk.remove("/b")
    world.node.start()
    world.settle()
    assert world.disk.read("/b/meta.properties") is not None
    assert len([line for line in world.node.trace if line.startswith("metadata-log-begins")]) == 1


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_left_over_log_of_another_topic_does_not_hide_the_log_in_a_later_directory(
    *, is_clean: bool
) -> None:
    world = served(is_clean=is_clean)
    (held,) = (name for name in ("t-0", "t-1") if name in world.disk.list("/b"))
    world.disk.make_directory(f"/a/{held}")
    world.disk.write(f"/a/{held}/{0:020d}.log", b"")
    of_another = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    world.disk.write(f"/a/{held}/partition.metadata", of_another)
    world.node.start()
    world.settle()
    request = fetch("t", 0, partition=int(held[-1]))
    answer = world.ask(world.node.connect(), request, FETCH_BY_NAME, FetchResponse)
    assert fetched(answer) == (0, [b"x"])
    assert [name for name in world.disk.list("/a") if name.startswith(held)] != [held]
