"""A disk that fills up: producers are refused first, everything else goes on, and service returns by
itself when there is room again.
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import (
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.offset_commit import OffsetCommitResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.disk.ballast import BALLAST_BYTES, FILE_NAME, START_BYTES, keep, written
from sparklog_server.disk.door import OutOfDescriptors, StorageError
from sparklog_server.simulation.cluster import SimulatedConnection
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk
from tests.broker.full_disk import (
    FULL,
    RESERVE,
    create,
    events,
    leader_of,
    leave,
    read,
    restarted,
    send,
    started,
)
from tests.broker.groups import COMMIT, ask_coordinator, commit, committed
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    produce,
    produced,
)


def test_producers_are_refused_at_the_reserve_and_everything_else_goes_on() -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    assert ask_coordinator(world, client, "g") == 0
    leave(world, RESERVE + 5_000)
    sent = []
    while (code := send(world, client, b"%d" % len(sent) * 900)[0]) == 0:
        sent.append(b"%d" % len(sent) * 900)
    assert code == FULL
    assert 3 <= len(sent) <= 5
    assert read(world, client) == (0, sent)
    for offset in range(len(sent)):
        assert committed(world.ask(client, commit("g", offset), COMMIT, OffsetCommitResponse)) == 0
    code, message = create(world, client, "more")
    assert code == FULL
    assert "sparklog.disk.reserve.bytes" in (message or "")
    growing = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)], timeout_ms=1000)
    grown = world.ask(client, growing, 1, CreatePartitionsResponse)
    assert isinstance(grown, CreatePartitionsResponse)
    assert grown.results[0].error_code == FULL
    assert leader_of(world, client) == 1
    assert send(world, client)[0] == FULL
    world.settle(20_000)
    assert len(events(world, "disk-full")) == 1
    assert f"reserve_bytes={RESERVE}" in events(world, "disk-full")[0]

    leave(world, RESERVE + RESERVE // 4)
    world.settle(2000)
    assert len(events(world, "disk-no-longer-full")) == 1
    assert send(world, client, b"again") == (0, len(sent))
    assert read(world, client) == (0, [*sent, b"again"])
    assert create(world, client, "more")[0] == 0
    assert not events(world, "log-directory-offline")


def test_the_answer_says_how_much_is_left_and_how_much_is_reserved() -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    leave(world, RESERVE)
    answer = world.ask(client, produce("t", world.batch(b"x")), PRODUCE_BY_NAME, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    assert (
        part.error_message
        == f"The disk of /data has {RESERVE} bytes left, of which producers may not use the last {RESERVE}."
    )


def test_a_batch_that_fits_no_more_is_refused_before_it_reaches_into_the_reserve() -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    leave(world, RESERVE + 30_000)
    for _ in range(40):
        send(world, client, b"x" * 2_900)
    assert world.disk.room("/data")[1] >= RESERVE - 1_000  # the broker's own writes


def test_retention_makes_room_and_producers_go_on() -> None:
    world, client = started()
    assert (
        create(
            world,
            client,
            "t",
            internal_segment_bytes=5500,
            retention_bytes=40_000,
            file_delete_delay_ms=3_600_000,
        )[0]
        == 0
    )
    leave(world, RESERVE + 160_000)
    acknowledged = refused = 0
    for number in range(150):
        code, _ = send(world, client, b"%4d" % number * 1100)
        acknowledged += code == 0
        refused += code != 0
    assert refused
    assert acknowledged > 60  # more than the disk has room for
    assert events(world, "segments-deleted")
    assert len(events(world, "disk-full")) == len(events(world, "disk-no-longer-full")) < 10
    assert not events(world, "log-directory-offline")


@pytest.mark.parametrize("is_full_before", [True, False])
def test_what_retention_took_leaves_a_full_disk_that_has_no_room_for_the_leader_epochs(
    is_full_before: bool,
) -> None:
    world, client = started(**{"log.initial.task.delay.ms": "60000"})
    assert (
        create(
            world, client, "t", internal_segment_bytes=1100, retention_bytes=2000, file_delete_delay_ms=1000
        )[0]
        == 0
    )
    assert [send(world, client, b"%d" % number * 400)[0] for number in range(30)] == [0] * 30
    world.settle(1500)
    assert not events(world, "segments-deleted")
    world.disk.fault = lambda call, path: (
        NO_SPACE if call == "replace" and "t-0/leader-epoch-checkpoint" in path else None
    )
    if not is_full_before:
        world.settle(180_000)  # the log start is written down, and the epochs that go with it are not
        assert [name for name in world.disk.list("/data/t-0") if name.endswith(".deleted")]
    leave(world, RESERVE)
    assert send(world, client)[0] == FULL
    world.settle(20_000)
    assert len(events(world, "segments-deleted")) == 1
    assert not [name for name in world.disk.list("/data/t-0") if name.endswith(".deleted")]
    world.node.kill()
    world.disk.fault = None
    client = restarted(world)
    assert code_and_first(world, client)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert send(world, client) == (0, 30)
    assert not events(world, "partition-offline")


def test_deleting_a_topic_on_a_full_disk_makes_room() -> None:
    world, client = started()
    assert [world.create(client, name) for name in ("t", "u")] == [0, 0]
    leave(world, RESERVE + 30_000)
    while send(world, client, b"x" * 1000)[0] == 0:
        pass
    answer = world.ask(
        client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4, DeleteTopicsResponse
    )
    assert isinstance(answer, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0
    world.settle(5000)
    assert send(world, client, topic="u") == (0, 0)


@pytest.mark.parametrize("renamed", ["/data/t-0", ".log"])
def test_names_for_which_a_full_disk_has_no_room_cost_the_ballast_and_nothing_more(renamed: str) -> None:
    world, client = started(**{"log.initial.task.delay.ms": "20000"})
    assert create(world, client, "t", internal_segment_bytes=1100, retention_bytes=2000)[0] == 0
    assert [send(world, client, b"%d" % number * 500)[0] for number in range(8)] == [0] * 8
    refusals = iter([None, None, NO_SPACE] if renamed == ".log" else [NO_SPACE])
    world.disk.fault = lambda call, path: (
        next(refusals, None) if call == "rename" and path.endswith(renamed) else None
    )
    if renamed == ".log":
        world.settle(15_000)
        assert events(world, "segments-deleted")
        assert code_and_first(world, client)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4, DeleteTopicsResponse)
    world.settle(70_000)
    assert next(refusals, None) is None
    assert world.disk.size(f"/data/{FILE_NAME}") == START_BYTES
    assert not [name for name in world.disk.list("/data") if name.endswith("-delete")]
    assert len([name for name in world.disk.list("/data/t-0") if ".log" in name]) <= 4
    assert not events(world, "log-directory-offline")
    assert world.create(client, "u") == 0


@pytest.mark.parametrize("is_disk_full", [True, False])
def test_a_topic_is_deleted_in_the_end_though_its_directories_cannot_be_renamed_at_first(
    is_disk_full: bool,
) -> None:
    def refuse(call: str, path: str) -> str | None:
        if call != "rename" or not path.startswith("/data/t-1"):
            return None
        if is_disk_full:
            return NO_SPACE
        raise OutOfDescriptors("/data", "sync", "Too many open files")

    world, client = started()
    assert world.create(client, "t", 3) == 0
    assert send(world, client)[0] == 0
    world.disk.remove(f"/data/{FILE_NAME}")
    world.disk.fault = refuse
    world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4, DeleteTopicsResponse)
    world.settle(5000)
    assert world.create(client, "t", 3) == 0
    world.settle(5000)
    assert world.disk.list("/data/t-1")
    assert send(world, client)[0] != 0  # the name is held
    world.disk.fault = None
    world.settle(10_000)
    assert not [name for name in world.disk.list("/data") if name.endswith("-delete")]
    assert send(world, client, b"new") == (0, 0)
    assert read(world, client) == (0, [b"new"])
    assert not events(world, "log-directory-offline")


@pytest.mark.parametrize("call", ["create", "rename"])
def test_a_log_that_a_start_on_a_full_disk_cannot_claim_or_set_aside_stays_as_it_is(call: str) -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    assert send(world, client, b"kept") == (0, 0)
    world.settle(10_000)
    world.node.kill(is_power_cut=False)
    world.disk.remove("/data/t-0/partition.metadata", f"/data/{FILE_NAME}")
    if call == "rename":  # of another topic of the name
        world.disk.write("/data/t-0/partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    world.disk.fault = lambda asked, path: (
        NO_SPACE if asked == call and path.startswith("/data/t-0") else None
    )
    client = restarted(world)
    assert send(world, client)[0] != 0
    world.disk.fault = None
    world.settle(5000)
    assert read(world, client) == (0, [b"kept"] if call == "create" else [])
    assert len(events(world, "stray-log-set-aside")) == (call == "rename")
    assert not events(world, "log-directory-offline")


def test_a_log_that_no_topic_claims_stays_on_a_full_disk_until_the_next_start() -> None:
    world, client = started()
    assert [world.create(client, name) for name in ("t", "u")] == [0, 0]
    assert send(world, client, topic="u")[0] == 0
    world.settle(10_000)
    world.node.kill(is_power_cut=False)
    world.disk.make_directory("/data/stray-0")
    world.disk.remove(f"/data/{FILE_NAME}")
    world.disk.fault = lambda call, path: NO_SPACE if call == "rename" and path == "/data/stray-0" else None
    client = restarted(world)
    assert send(world, client, topic="u") == (0, 1)
    assert not events(world, "log-directory-offline")
    world.disk.fault = None
    world.node.stop()
    restarted(world)
    assert len(events(world, "stray-log-set-aside")) == 1


def code_and_first(world: World, client: SimulatedConnection) -> tuple[int, list[bytes]]:
    return fetched(world.ask(client, fetch("t", 0, max_wait_ms=0), FETCH_BY_NAME, FetchResponse))


@pytest.mark.parametrize("flush", ["auto", "never"])
def test_others_fill_the_disk_to_its_last_byte_and_the_broker_serves_on(flush: str) -> None:
    world, client = started(
        **{"sparklog.ack.flush": flush, "replica.high.watermark.checkpoint.interval.ms": "100"}
    )
    assert create(world, client, "t", internal_segment_bytes=2000)[0] == 0
    assert ask_coordinator(world, client, "g") == 0
    assert [send(world, client, b"%d" % number * 500)[0] for number in range(5)] == [0] * 5
    leave(world, 0)
    for _ in range(5):
        assert send(world, client, b"y" * 500)[0] == FULL
        assert (
            committed(world.ask(client, commit("g", 1), COMMIT, OffsetCommitResponse))
            == ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        assert read(world, client) == (0, [b"%d" % number * 500 for number in range(5)])
        world.settle(6000)
    assert len(events(world, "disk-full")) == 1
    leave(world, 1_000_000)
    world.settle(7000)
    assert committed(world.ask(client, commit("g", 2), COMMIT, OffsetCommitResponse)) == 0
    assert send(world, client, b"z") == (0, 5)
    assert not events(world, "log-directory-offline")
    world.node.stop()
    assert world.disk.read("/data/.kafka_cleanshutdown") is not None


@pytest.mark.parametrize("call", ["create", "append", "replace"])
def test_a_partition_that_a_full_disk_has_no_room_for_is_begun_later(call: str) -> None:
    for partitions in (1, 20):  # in the turn, and by a job
        world, client = started()
        world.disk.fault = lambda asked, path: NO_SPACE if asked == call and "/data/t-" in path else None
        assert world.create(client, "t", partitions) == 0
        client.send(produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
        world.settle()
        # Refused, or in the log and not acknowledged: what goes with its sync has no room.
        is_parked = isinstance(client.replies[-1], CreateTopicsResponse)
        assert is_parked or produced(client.replies[-1])[0] != 0
        assert not events(world, "log-directory-offline")
        world.disk.fault = None
        world.settle(3000)
        assert not is_parked or produced(client.replies[-1])[0] == 0
        assert send(world, client, b"at last")[0] == 0
        assert read(world, client)[1][-1] == b"at last"


@pytest.mark.parametrize("left", [0, 3_000])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_start_on_a_full_disk_serves_what_is_there(is_killed: bool, left: int) -> None:
    world, client = started()
    assert create(world, client, "t", internal_segment_bytes=1100)[0] == 0
    sent = [b"%d" % number * 500 for number in range(8)]
    assert [send(world, client, value)[0] for value in sent] == [0] * 8
    leave(world, left)
    assert send(world, client)[0] == FULL
    if is_killed:
        world.node.kill()
    else:
        world.node.stop()
    client = restarted(world)
    assert read(world, client) == (0, sent)
    assert send(world, client)[0] == FULL
    leave(world, 2 * RESERVE)
    world.settle(2000)
    assert send(world, client) == (0, 8)


def test_a_start_that_has_no_room_even_for_its_vote_waits_until_there_is_some() -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    assert send(world, client)[0] == 0
    world.disk.remove(f"/data/{FILE_NAME}")
    leave(world, 0)
    world.node.kill()
    world.node.start()
    world.settle(10_000)
    assert not world.node.running.is_ready
    assert len(events(world, "metadata-log-awaits-room")) == 1
    leave(world, 2 * RESERVE)
    world.settle(5_000)
    assert world.node.running.is_ready
    assert read(world, world.node.connect()) == (0, [b"x"])


def test_a_topic_can_be_deleted_though_the_metadata_log_has_no_room() -> None:
    world, client = started()
    assert [world.create(client, name) for name in ("t", "u")] == [0, 0]
    assert send(world, client, b"x" * 900_000)[0] == 0
    leave(world, 0)
    answer = world.ask(
        client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4, DeleteTopicsResponse
    )
    assert isinstance(answer, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0
    assert len(events(world, "disk-ballast-halved")) == 1
    world.settle(5000)
    assert send(world, client, topic="u") == (0, 0)


def test_a_clean_stop_ends_though_there_is_no_room_for_what_it_writes() -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    assert send(world, client)[0] == 0
    leave(world, 0)
    world.node.stop()
    assert not events(world, "log-directory-offline")
    leave(world, 1_000_000)
    assert read(world, restarted(world)) == (0, [b"x"])


@pytest.mark.parametrize("seed", range(6))
def test_no_acknowledged_record_is_lost_in_crashes_of_a_disk_that_fills_and_empties(seed: int) -> None:
    world, client = started()
    random = Random(seed)
    assert create(world, client, "t", internal_segment_bytes=2500)[0] == 0
    acknowledged: dict[int, bytes] = {}
    number = 0
    for _ in range(4):
        leave(world, random.choice([0, 500, RESERVE + 3_000, RESERVE + 500_000]))
        for _ in range(random.randrange(12)):
            value = b"%d" % number * random.randrange(1, 300)
            number += 1
            code, offset = send(world, client, value)
            if code == 0:
                acknowledged[offset] = value
        world.settle(random.randrange(8000))
        world.node.kill(is_power_cut=random.random() < 0.7)
        leave(world, random.choice([2_000, RESERVE + 500_000]))
        client = restarted(world)
        code, values = read(world, client)
        assert code == 0
        for offset, value in acknowledged.items():
            assert values[offset] == value
    assert acknowledged or seed


def test_a_full_disk_gives_up_half_of_its_ballast_for_the_checkpoint_that_removals_wait_for() -> None:
    disk = SimulatedDisk()
    disk.make_directory("data")
    disk.write("data/.sparklog-ballast", bytes(BALLAST_BYTES))
    refusals = iter([StorageError("data/a", "append", "No space left on device", is_full=True)])
    calls: list[int] = []

    def write() -> str:
        calls.append(disk.size("data/.sparklog-ballast"))
        for refusal in refusals:
            raise refusal
        return "written"

    assert written(disk, "data", write) == "written"
    assert calls == [BALLAST_BYTES, BALLAST_BYTES // 2]


@pytest.mark.parametrize("call", ["truncate", "append"])
def test_a_ballast_that_is_made_whole_again_never_has_less_than_its_half(call: str) -> None:
    disk = SimulatedDisk()
    disk.make_directory("data")
    disk.write(f"data/{FILE_NAME}", bytes(START_BYTES))
    disk.fault = lambda asked, _: NO_SPACE if asked == call else None
    keep(disk, "data")
    assert disk.size(f"data/{FILE_NAME}") == (START_BYTES if call == "append" else BALLAST_BYTES)
    disk.fault = None
    keep(disk, "data")
    assert disk.size(f"data/{FILE_NAME}") == BALLAST_BYTES


def test_a_quota_that_the_system_does_not_tell_of_is_one_episode_and_service_returns_when_it_is_lifted() -> (
    None
):
    world, client = started()
    assert world.create(client, "t") == 0
    world.disk.fault = lambda call, path: (
        NO_SPACE if call == "append" and path.startswith("/data/t-") else None
    )
    for _ in range(20):
        assert send(world, client)[0] == FULL
        world.settle(300)
    assert (len(events(world, "disk-full")), events(world, "disk-no-longer-full")) == (1, [])
    world.disk.fault = None
    world.settle(3000)
    assert send(world, client) == (0, 0)
    assert (len(events(world, "disk-full")), len(events(world, "disk-no-longer-full"))) == (1, 1)


@pytest.mark.parametrize("call", ["create", "mkdir"])
def test_a_disk_that_has_bytes_and_no_inode_left_refuses_no_producer_of_the_logs_it_has(call: str) -> None:
    world, client = started()
    assert world.create(client, "t") == 0
    world.disk.fault = lambda asked, path: NO_SPACE if asked == call and path.startswith("/data/u-") else None
    assert create(world, client, "u")[0] == 0
    for offset in range(50):
        assert send(world, client) == (0, offset)
        world.settle(300)
    assert send(world, client, topic="u")[0] != 0
    assert not events(world, "disk-full")
    world.disk.fault = None
    world.settle(3000)
    assert send(world, client, topic="u") == (0, 0)


def test_a_producer_whose_batch_needs_a_new_segment_is_told_that_the_disk_refuses_the_file() -> None:
    world, client = started()
    assert [create(world, client, name, internal_segment_bytes=1100)[0] for name in ("t", "u")] == [0, 0]
    assert [send(world, client, b"x" * 600, topic)[0] for topic in ("t", "u")] == [0, 0]
    world.disk.fault = lambda call, path: (
        NO_SPACE if call == "create" and path.startswith("/data/t-0/") else None
    )
    answer = world.ask(
        client, produce("t", world.batch(b"y" * 600), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
    )
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    assert part.error_code == FULL
    assert NO_SPACE in (part.error_message or "")
    assert send(world, client, b"y" * 600, "u") == (0, 1)
    world.disk.fault = None
    assert send(world, client, b"y" * 600) == (0, 1)
    assert not events(world, "disk-full")
