"""Read-committed fetches over transactions that were aborted long ago: their index entries lie in files
that have not been read yet.
"""

import inspect
from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from tests.broker.coordinators import participants
from tests.broker.world import FETCH_BY_NAME, World, fetch, fetched

NONE = ErrorCode.NONE
ABORTED = 40


def aborted_long_ago() -> tuple[World, list[int]]:
    """A topic of several segments, most of what is in it aborted, after a clean restart; where each
    aborted transaction begins.
    """
    settings: dict[str, Any] = {"log.segment.bytes": str(1 << 20)}
    world = participants.started(**settings)
    writer = participants.Writer(world, "a", version=2)
    starts = []
    for _ in range(ABORTED):
        code, offset = writer.send(b"n" * 100_000)
        assert code is NONE
        starts.append(offset)
        assert writer.end(is_commit=False) is NONE
    assert writer.send(b"yes")[0] is NONE
    assert writer.end(is_commit=True) is NONE
    assert len([name for name in world.disk.list("/data/t-0") if name.endswith(".txnindex")]) > 2
    world.node.stop()
    world.settle()
    world.node.start()
    world.settle()
    return world, starts


def test_a_reader_is_told_of_what_was_aborted_before_a_restart() -> None:
    world, starts = aborted_long_ago()
    _, aborted, _ = participants.read(world)
    told = [first for _, first in aborted]
    assert told == starts[: len(told)]
    assert told
    assert world.node.halted is None


def test_what_was_aborted_is_read_beside_the_loop() -> None:
    world, _ = aborted_long_ago()
    readers: list[str] = []

    def noted(call: str, path: str) -> None:
        if call == "read" and path.endswith(".txnindex"):
            readers.append(
                "run" if any(frame.function == "_run_all" for frame in inspect.stack()) else "loop"
            )

    world.disk.fault = noted
    participants.read(world)
    assert set(readers) == {"run"}


@pytest.mark.parametrize("content", [b"nonsense", bytes(34)])
def test_an_index_that_says_nonsense_is_made_anew_and_the_reader_told_the_truth(content: bytes) -> None:
    world, starts = aborted_long_ago()
    (first, *_) = sorted(name for name in world.disk.list("/data/t-0") if name.endswith(".txnindex"))
    path = f"/data/t-0/{first}"
    before = world.disk.read(path)
    world.disk.write(path, content)
    _, aborted, _ = participants.read(world)
    assert [start for _, start in aborted] == starts[: len(aborted)]
    assert aborted
    assert world.disk.read(path) == before


def test_a_disk_that_refuses_the_index_takes_its_directory_offline() -> None:
    world, _ = aborted_long_ago()
    world.disk.fault = lambda call, path: (
        "injected" if call == "read" and path.endswith(".txnindex") else None
    )
    with pytest.raises(AssertionError, match=str(ErrorCode.KAFKA_STORAGE_ERROR.value)):
        participants.read(world)


def test_an_index_is_not_made_anew_for_a_topic_that_is_deleted_while_it_is_read() -> None:
    world, _ = aborted_long_ago()
    (first, *_) = sorted(name for name in world.disk.list("/data/t-0") if name.endswith(".txnindex"))
    world.disk.write(f"/data/t-0/{first}", b"nonsense")
    written: list[str] = []

    def noted(call: str, path: str) -> None:
        if call == "replace" and ".txnindex" in path:
            written.append(path)

    world.disk.fault = noted
    reader, deleter = world.node.connect(), world.node.connect()
    request = fetch("t", 0, max_wait_ms=0)
    request.isolation_level = participants.READ_COMMITTED
    reader.send(request, FETCH_BY_NAME, FetchResponse)
    deleter.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
    world.settle()
    assert [fetched(reply) for reply in reader.replies] == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])]
    assert written == []
