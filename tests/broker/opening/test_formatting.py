"""`sparklog format`: what is on the disk afterwards, and what is refused."""

import pytest

from sparklog.errors import SettingsError
from sparklog.model import Millis, NodeId, Uuid
from sparklog.record.control import KRaftVersion, KRaftVoters, QuorumVoter
from sparklog_server.broker.opening.formatting import format_node, initial_controllers, standalone
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.log.directory.first_start import (
    METADATA_DIRECTORY,
    refuse_unformatted,
    refuse_what_was_lost,
)
from sparklog_server.log.directory.identity import DirectoryRefused, encode_uuid, read_meta
from sparklog_server.raft.snapshots import read_bootstrap
from sparklog_server.raft.voters import VoterSet
from sparklog_server.simulation.disk import SimulatedDisk
from tests.entropy import CountingEntropy

CLUSTER = "dHlwaWNhbC1jbHVzdGVyIQ"
IDS = [encode_uuid(Uuid(bytes([number]) * 16)) for number in range(1, 4)]
THREE = ",".join(f"{n}@127.0.0.1:{9092 + n}:{IDS[n - 1]}" for n in (1, 2, 3))
NODE = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
}


def formatted(
    disk: SimulatedDisk,
    settings: BrokerSettings,
    voters: tuple[QuorumVoter, ...] = (),
    *,
    cluster_id: str = CLUSTER,
    ignores_formatted: bool = False,
) -> dict[str, Uuid]:
    return format_node(
        settings,
        disk,
        cluster_id=cluster_id,
        voters=voters,
        entropy=CountingEntropy(),
        wall_ms=Millis(5),
        ignores_formatted=ignores_formatted,
    )


def voters_on(disk: SimulatedDisk, path: str) -> VoterSet | None:
    found = read_bootstrap(disk, f"{path}/{METADATA_DIRECTORY}")
    if found is None:
        return None
    version, voters = found.control
    assert version == KRaftVersion(k_raft_version=1)
    assert isinstance(voters, KRaftVoters)
    return VoterSet.of(voters)


def test_a_standalone_node_is_the_only_voter_at_its_controller_listener() -> None:
    disk, settings = SimulatedDisk(), BrokerSettings.of(NODE)
    ids = formatted(disk, settings, standalone(settings, CountingEntropy()))
    voters = voters_on(disk, "/data")
    assert voters is not None
    assert voters.directories == {1: ids["/data"]}
    endpoint = voters.endpoints[NodeId(1)][0]
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "127.0.0.1", 9093)
    meta = read_meta(disk, "/data", node_id=NodeId(1), cluster_id=CLUSTER, entropy=CountingEntropy())
    assert meta["directory.id"] == encode_uuid(ids["/data"])


def test_each_initial_controller_has_its_directory_id_in_the_directory_of_the_metadata_log() -> None:
    disk = SimulatedDisk()
    settings = BrokerSettings.of(NODE | {"node.id": "2", "log.dirs": "/a,/b", "metadata.log.dir": "/b"})
    ids = formatted(disk, settings, initial_controllers(settings, THREE))
    assert encode_uuid(ids["/b"]) == IDS[1]
    assert encode_uuid(ids["/a"]) not in IDS
    voters = voters_on(disk, "/b")
    assert voters is not None
    assert sorted(voters.directories) == [1, 2, 3]
    assert voters_on(disk, "/a") is None


def test_a_node_without_initial_controllers_gets_no_voters() -> None:
    disk = SimulatedDisk()
    formatted(disk, BrokerSettings.of(NODE))
    assert voters_on(disk, "/data") is None


def test_a_node_is_not_formatted_twice() -> None:
    disk, settings = SimulatedDisk(), BrokerSettings.of(NODE)
    formatted(disk, settings)
    with pytest.raises(DirectoryRefused, match="already formatted; name an empty directory"):
        formatted(disk, settings)
    with pytest.raises(DirectoryRefused, match="already formatted"):
        formatted(disk, BrokerSettings.of(NODE | {"log.dirs": "/new,/data"}))
    assert disk.list("/new") == []


def test_directories_beside_those_that_are_formatted_join_their_cluster() -> None:
    disk, more = SimulatedDisk(), BrokerSettings.of(NODE | {"log.dirs": "/new,/data"})
    (kept,) = formatted(disk, BrokerSettings.of(NODE)).values()
    with pytest.raises(DirectoryRefused, match=r"no new cluster is begun .*--no-initial-controllers"):
        formatted(disk, more, standalone(more, CountingEntropy()), ignores_formatted=True)
    with pytest.raises(DirectoryRefused, match="belongs to cluster"):
        formatted(disk, more, cluster_id="BBBBBBBBBBBBBBBBBBBBBA", ignores_formatted=True)
    assert [*formatted(disk, more, ignores_formatted=True)] == ["/new"]
    assert formatted(disk, more, standalone(more, CountingEntropy()), ignores_formatted=True) == {}
    meta = read_meta(disk, "/data", node_id=NodeId(1), cluster_id=CLUSTER, entropy=CountingEntropy())
    assert meta["directory.id"] == encode_uuid(kept)


def test_a_node_of_a_cluster_does_not_start_unformatted() -> None:
    disk = SimulatedDisk()
    with pytest.raises(DirectoryRefused, match=r"not formatted, and a node .* cluster's id: format it$"):
        refuse_unformatted(disk, "/data", "format it")
    formatted(disk, BrokerSettings.of(NODE))
    refuse_unformatted(disk, "/data", "format it")


def test_the_rest_of_a_lost_directory_is_moved_away_before_the_format() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data", "/data/orders-0")
    with pytest.raises(DirectoryRefused, match=r"partition orders-0.*: move /data away, .*: format it$"):
        refuse_unformatted(disk, "/data", "format it")
    disk.make_directory("/data/__cluster_metadata-0")
    disk.write("/data/__cluster_metadata-0/00000000000000000000.log", b"")
    with pytest.raises(DirectoryRefused, match="run `sparklog log repair /data`"):
        refuse_unformatted(disk, "/data", "format it")


def test_a_directory_that_has_served_is_not_formatted() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data", "/data/orders-0")
    with pytest.raises(DirectoryRefused, match="orders-0"):
        formatted(disk, BrokerSettings.of(NODE))


def test_a_node_that_lost_power_before_its_format_ended_does_not_begin_without_its_voters() -> None:
    disk, settings = SimulatedDisk(), BrokerSettings.of(NODE)
    formatted(disk, settings, standalone(settings, CountingEntropy()))
    disk.remove("/data/meta.properties")
    with pytest.raises(DirectoryRefused, match="the metadata log"):
        refuse_what_was_lost(disk, "/data")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1@127.0.0.1:9093", "ID@HOST:PORT:DIRECTORY-ID"),
        (f"127.0.0.1:9093:{IDS[0]}", "ID@HOST:PORT:DIRECTORY-ID"),
        ("1@127.0.0.1:9093:short", "is not a UUID|ID@HOST:PORT:DIRECTORY-ID"),
        (f"1@a:1:{IDS[0]},1@b:1:{IDS[1]}", "a node id appears twice"),
        (f"1@a:1:{IDS[0]},2@b:1:{IDS[0]}", "a directory id appears twice"),
    ],
)
def test_initial_controllers_that_cannot_be_meant_are_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        initial_controllers(BrokerSettings.of(NODE), text)


def test_voters_are_given_in_one_place() -> None:
    settings = BrokerSettings.of(NODE | {"controller.quorum.voters": "1@127.0.0.1:9093"})
    with pytest.raises(SettingsError, match="defines a static quorum"):
        formatted(SimulatedDisk(), settings, standalone(settings, CountingEntropy()))
    broker = BrokerSettings.of(
        {
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        }
    )
    with pytest.raises(SettingsError, match=r"set process\.roles=broker,controller"):
        initial_controllers(broker, THREE)
    with pytest.raises(SettingsError, match="needs a controller"):
        standalone(broker, CountingEntropy())
    with pytest.raises(SettingsError, match="needs a listener for other nodes"):
        standalone(BrokerSettings.of({}), CountingEntropy())
