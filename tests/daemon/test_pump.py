"""Bytes and effects between a socket and the broker."""

import contextlib
import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from sparklog.effects import CHUNK_BYTES
from sparklog.model import SessionId
from sparklog_server.daemon import connection as module
from sparklog_server.daemon.cold_run import AHEAD_BYTES
from sparklog_server.daemon.connection import GATHERED_CHUNKS_MAX, GATHERED_SLICE_BYTES_MAX
from sparklog_server.daemon.page_cache import READ_STEP_BYTES
from sparklog_server.daemon.reactor import ENDED_PER_TURN
from sparklog_server.disk.os_disk import OPEN_FILES_MAX
from tests.daemon.cold import chill
from tests.daemon.conftest import Rig
from tests.daemon.echo import HEADER

pytestmark = pytest.mark.disk

MIB = 1 << 20


def test_replies_of_one_turn_leave_together_and_in_order(rig: Rig) -> None:
    client = rig.client()
    client.sendall(b"echo one\necho two\necho three\n")
    rig.turn()
    assert client.recv(100) == b"onetwothree"


def test_a_request_is_served_in_the_turn_in_which_very_many_connections_end(rig: Rig) -> None:
    others = [rig.client() for _ in range(300)]
    client = rig.client()
    for other in others:
        other.close()
    client.sendall(b"echo x\n")
    rig.turn()
    assert client.recv(100) == b"x"
    assert len(rig.broker.gone) == ENDED_PER_TURN
    while len(rig.broker.gone) < len(others):
        rig.turn()


def test_what_a_client_sends_before_it_ends_is_served(rig: Rig) -> None:
    client = rig.client()
    client.sendall(b"echo x\n" * 3)
    client.close()
    rig.turn()
    assert rig.broker.answered == 3


def test_more_replies_than_one_system_call_takes_all_arrive(rig: Rig) -> None:
    count = 3 * GATHERED_CHUNKS_MAX + 1
    client = rig.client()
    assert rig.exchange(client, b"echo x\n" * count, count) == b"x" * count


@pytest.mark.parametrize(
    "length", [1, 4096, GATHERED_SLICE_BYTES_MAX, GATHERED_SLICE_BYTES_MAX + 1, MIB, 5 * MIB + 7]
)
def test_a_slice_arrives_byte_for_byte_between_its_neighbours(rig: Rig, length: int) -> None:
    content = os.urandom(length + 10)
    rig.file.append(content)
    client = rig.client()
    expected = b"before" + HEADER + content[5 : 5 + length] + b"after"
    assert rig.exchange(client, b"echo before\nslice 5 %d\necho after\n" % length, len(expected)) == expected


@pytest.mark.parametrize("length", [4096, 3 * MIB])
def test_a_slice_that_is_not_in_the_page_cache_is_read_ahead_and_arrives(rig: Rig, length: int) -> None:
    content = os.urandom(length)
    rig.file.append(content)
    chill(rig.file.fileno())
    client = rig.client()
    expected = HEADER + content
    assert rig.exchange(client, b"slice 0 %d\n" % length, len(expected)) == expected


@pytest.mark.parametrize("length", [4096, MIB // 3, MIB])
def test_cold_slices_that_follow_each_other_arrive_byte_for_byte(rig: Rig, length: int) -> None:
    content = os.urandom(9 * length)
    rig.file.append(content)
    chill(rig.file.fileno())
    client = rig.client()
    for position in range(0, len(content), length):
        expected = HEADER + content[position : position + length]
        assert rig.exchange(client, b"slice %d %d\n" % (position, length), len(expected)) == expected


def test_slices_of_a_cold_file_arrive_in_any_order_and_while_the_file_grows(rig: Rig) -> None:
    content = os.urandom(8 * MIB)
    rig.file.append(content)
    chill(rig.file.fileno())
    client = rig.client()
    for position in (0, MIB, 6 * MIB, 2 * MIB, 2 * MIB, 3 * MIB, 7 * MIB, 8 * MIB):
        added = os.urandom(MIB)
        rig.file.append(added)
        content += added
        expected = HEADER + content[position : position + MIB]
        assert rig.exchange(client, b"slice %d %d\n" % (position, MIB), len(expected)) == expected


def read_by_jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ends of the ranges that threads other than this one read from now on."""
    limits: list[int] = []
    sendfile, loop = os.sendfile, threading.get_ident()

    def noted(out: int, source: int, position: int, size: int) -> int:
        if threading.get_ident() != loop:
            limits.append(position + size)
        return sendfile(out, source, position, size)

    monkeypatch.setattr(os, "sendfile", noted)
    return limits


def test_jobs_read_ahead_of_a_reader_that_goes_on_in_a_cold_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.file.append(os.urandom(12 * MIB))
    chill(rig.file.fileno())
    limits, client = read_by_jobs(monkeypatch), rig.client()
    rig.exchange(client, b"slice 0 %d\n" % MIB, len(HEADER) + MIB)
    assert max(limits) == MIB
    rig.exchange(client, b"slice %d %d\n" % (MIB, MIB), len(HEADER) + MIB)
    while max(limits) < 2 * MIB + AHEAD_BYTES:
        rig.turn(wait_s=0.02)
    rig.exchange(client, b"echo x\n", 1)
    assert max(limits) == 2 * MIB + AHEAD_BYTES


def test_pages_that_jobs_have_read_ahead_and_the_kernel_has_dropped_are_read_by_a_job_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(12 * MIB)
    rig.file.append(content)
    chill(rig.file.fileno())
    limits, client = read_by_jobs(monkeypatch), rig.client()
    for position in (0, MIB):
        rig.exchange(client, b"slice %d %d\n" % (position, MIB), len(HEADER) + MIB)
    while max(limits) < 2 * MIB + AHEAD_BYTES:
        rig.turn(wait_s=0.02)
    limits.clear()
    chill(rig.file.fileno())
    expected = HEADER + content[2 * MIB : 3 * MIB]
    assert rig.exchange(client, b"slice %d %d\n" % (2 * MIB, MIB), len(expected)) == expected
    assert min(limits) <= 3 * MIB


def would_wait(*_: object) -> int:
    raise BlockingIOError


def test_pages_of_a_slice_that_its_peer_has_left_unread_for_long_are_looked_for_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(4 * MIB)
    rig.file.append(content)
    limits, client = read_by_jobs(monkeypatch), rig.client()
    with monkeypatch.context() as later:
        later.setattr(module, "RESIDENT_NS", 0)
        client.sendall(b"slice 0 %d\n" % len(content))
        rig.turn()
    assert limits == []
    sent = len(client.recv(len(content), socket.MSG_PEEK)) - len(HEADER)
    monkeypatch.setattr(os, "preadv", would_wait)  # the kernel has dropped all pages
    expected = HEADER + content
    assert rig.exchange(client, b"", len(expected)) == expected
    assert min(limits) <= sent + READ_STEP_BYTES


def test_no_job_reads_for_a_reader_at_the_end_of_a_file_that_grows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, client = read_by_jobs(monkeypatch), rig.client()
    for position in range(0, 4 * MIB, MIB):
        rig.file.append(os.urandom(MIB))
        rig.exchange(client, b"slice %d %d\n" % (position, MIB), len(HEADER) + MIB)
    assert limits == []


def test_a_file_that_cannot_be_read_on_costs_no_connection_before_a_slice_needs_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(8 * MIB)
    rig.file.append(content)
    chill(rig.file.fileno())
    client = rig.client()
    sendfile, damaged_from = os.sendfile, 3 * MIB

    def failing(out: int, source: int, position: int, size: int) -> int:
        if position + size > damaged_from:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return sendfile(out, source, position, size)

    monkeypatch.setattr(os, "sendfile", failing)
    for position in (0, MIB, 2 * MIB):
        expected = HEADER + content[position : position + MIB]
        assert rig.exchange(client, b"slice %d %d\n" % (position, MIB), len(expected)) == expected
    assert rig.broker.gone == []
    rig.exchange(client, b"slice %d %d\n" % (3 * MIB, MIB), len(HEADER) + MIB)
    assert len(rig.broker.gone) == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize("length", [4096, 3 * MIB])
def test_a_slice_arrives_also_where_the_kernel_takes_its_pages_back_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    content = os.urandom(length)
    rig.file.append(content)
    monkeypatch.setattr(os, "preadv", would_wait)
    expected = HEADER + content
    assert rig.exchange(rig.client(), b"slice 0 %d\n" % length, len(expected)) == expected


def test_other_sessions_are_answered_while_a_cold_slice_is_sent(rig: Rig) -> None:
    content = os.urandom(4 * MIB)
    rig.file.append(content)
    chill(rig.file.fileno())
    reader, other = rig.client(), rig.client()
    reader.sendall(b"slice 0 %d\n" % len(content))
    answered = 0
    received = bytearray()
    while len(received) < len(HEADER) + len(content):
        answered += rig.exchange(other, b"echo x\n", 1) == b"x"
        received += rig.exchange(reader, b"", 1)
    assert received == HEADER + content
    assert answered > 1


def test_a_slow_reader_is_not_read_until_it_has_taken_what_waits_for_it(rig: Rig) -> None:
    rig.file.append(bytes(8 * MIB))
    client = rig.client()
    client.sendall(b"slice 0 %d\n" % (8 * MIB))
    rig.turn()
    client.sendall(b"echo last\n")
    rig.turn()
    assert rig.broker.answered == 1
    expected = len(HEADER) + 8 * MIB + len(b"last")
    assert rig.exchange(client, b"", expected).endswith(b"last")
    assert rig.broker.answered == 2


def test_what_waits_is_counted_once_however_often_more_is_queued(rig: Rig) -> None:
    class Counted(bytes):
        count = 0

        def __len__(self) -> int:
            Counted.count += 1
            return super().__len__()

    rig.client()
    (connection,) = rig.pump.connections.values()
    connection.queue([bytes(8 * MIB)])
    connection.flush()
    for _ in range(100):
        connection.queue([Counted(b"reply")])
        connection.flush()
    assert Counted.count <= 100
    assert rig.broker.unread_bytes[connection.session] >= 8 * MIB + 500


def test_memory_that_replies_hold_is_told_while_a_slice_is_sent_and_after_it(rig: Rig) -> None:
    rig.file.append(bytes(8 * MIB))
    client = rig.client()
    client.sendall(b"slice 0 %d\nslice 0 100\necho %s\n" % (8 * MIB, b"x" * 4096))
    rig.turn()
    told = 4 * CHUNK_BYTES + len(HEADER) + 4096
    assert rig.broker.unread_bytes == {SessionId(1): told}
    length = 8 * MIB + 100 + 4096 + 2 * len(HEADER)
    assert len(rig.exchange(client, b"", length)) == length
    assert rig.broker.unread_bytes == {SessionId(1): 0}


def test_a_slow_reader_of_one_large_reply_is_told_to_the_broker_each_time_it_has_read(rig: Rig) -> None:
    client = rig.client()
    (connection,) = rig.pump.connections.values()
    connection.queue([bytes(8 * MIB)])
    connection.flush()
    rig.broker.reads = 0
    rig.turn()
    assert (rig.broker.reads, rig.broker.unread_bytes[connection.session] >= 8 * MIB) == (0, True)
    for reads in range(1, 4):
        while client_takes(client):
            pass
        rig.turn()
        assert (rig.broker.reads, rig.broker.unread_bytes[connection.session] >= 8 * MIB) == (reads, True)


def test_a_client_for_which_more_replies_are_queued_has_not_read(rig: Rig) -> None:
    rig.client()
    (connection,) = rig.pump.connections.values()
    connection.queue([bytes(8 * MIB)])
    connection.flush()
    rig.broker.reads = 0
    connection.queue([bytes(MIB)])
    connection.flush()
    assert (rig.broker.reads, rig.broker.unread_bytes[connection.session] >= 9 * MIB) == (0, True)


def test_a_closed_file_gives_its_descriptor_back_with_the_last_byte_that_is_sent(rig: Rig) -> None:
    rig.file.append(bytes(8 * MIB))
    client = rig.client()
    client.sendall(b"slice 0 %d\n" % (8 * MIB))
    rig.turn()
    rig.file.close()
    rig.disk.remove(rig.file.path)
    assert unlinked(rig.file.path) == 1
    assert len(rig.exchange(client, b"", len(HEADER) + 8 * MIB)) == len(HEADER) + 8 * MIB
    assert unlinked(rig.file.path) == 0


@pytest.mark.parametrize("length", [100, 8 * MIB])
def test_a_closed_file_gives_its_descriptor_back_when_its_reader_leaves(rig: Rig, length: int) -> None:
    rig.file.append(bytes(8 * MIB))
    client = rig.client()
    client.sendall(b"slice 0 %d\nslice 0 %d\n" % (8 * MIB, length))
    rig.turn()
    rig.file.close()
    rig.disk.remove(rig.file.path)
    assert unlinked(rig.file.path) == 1
    client.close()
    rig.turn()
    assert unlinked(rig.file.path) == 0


def test_the_reader_of_the_file_that_was_closed_first_makes_way_for_those_of_many_others(rig: Rig) -> None:
    rig.file.append(bytes(8 * MIB))
    client = rig.client()
    client.sendall(b"slice 0 %d\n" % (8 * MIB))
    rig.turn()
    rig.file.close()
    others = [rig.disk.open(f"{rig.file.path}-{index}", create=True) for index in range(OPEN_FILES_MAX // 2)]
    for other in others:
        other.retain()
        other.close()
    assert len(rig.exchange(client, b"", 8 * MIB)) < 8 * MIB
    assert rig.lines == ["reply-aborted"]


def client_takes(client: socket.socket) -> int:
    """The bytes that were there to be read, without waiting; at most 1 MiB of them."""
    with contextlib.suppress(BlockingIOError):
        return len(client.recv(MIB))
    return 0


def unlinked(path: str) -> int:
    """How many descriptors of this process name a file that was removed from `path`."""
    count = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(one.readlink()) == f"{path} (deleted)"
    return count


def test_a_file_shorter_than_promised_breaks_the_connection_and_is_logged(rig: Rig) -> None:
    rig.file.append(b"z" * 100_000)
    client = rig.client()
    assert len(rig.exchange(client, b"slice 0 200000\n", 200_007)) < 200_007
    assert rig.broker.gone == rig.broker.sessions
    assert rig.lines == ["reply-aborted"]


def test_a_muted_session_is_not_read_until_it_is_unmuted(rig: Rig) -> None:
    client = rig.client()
    client.sendall(b"mute\n")
    rig.turn()
    client.sendall(b"echo later\n")
    rig.turn()
    with pytest.raises(BlockingIOError):
        client.recv(100)
    rig.broker.unmute(rig.broker.sessions[0])
    other = rig.client()
    other.sendall(b"echo now\n")
    rig.turn()
    rig.turn()
    assert client.recv(100) == b"later"


def test_a_disconnect_comes_after_what_was_already_replied(rig: Rig) -> None:
    client = rig.client()
    assert rig.exchange(client, b"echo first\nclose\n", 100) == b"firstbye"
    assert rig.broker.gone == rig.broker.sessions


def test_a_peer_that_leaves_is_told_to_the_broker_once(rig: Rig) -> None:
    client = rig.client()
    client.close()
    rig.turn()
    assert rig.broker.gone == rig.broker.sessions
    assert rig.pump.connections == {}


def test_a_peer_that_breaks_off_while_muted_is_noticed(rig: Rig) -> None:
    client = rig.client()
    client.sendall(b"mute\n")
    rig.turn()
    client.close()
    rig.turn()
    assert rig.broker.gone == rig.broker.sessions


def test_a_peer_that_leaves_before_its_reply_hurts_nobody_else(rig: Rig) -> None:
    leaving, staying = rig.client(), rig.client()
    leaving.sendall(b"echo unheard\n")
    leaving.close()
    rig.turn()
    assert rig.exchange(staying, b"echo heard\n", 5) == b"heard"
    assert rig.broker.gone == rig.broker.sessions[:1]


def test_a_connection_for_whose_request_there_is_no_memory_closes_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    starved, other = rig.client(), rig.client()
    buffer = rig.broker.buffer

    def scarce(session_id: SessionId) -> memoryview:
        if session_id == rig.broker.sessions[0]:
            raise MemoryError
        return buffer(session_id)

    monkeypatch.setattr(rig.broker, "buffer", scarce)
    starved.sendall(b"echo much\n")
    assert rig.exchange(other, b"echo little\n", 6) == b"little"
    assert (rig.broker.gone, rig.lines) == (rig.broker.sessions[:1], ["out-of-memory"])


def test_a_sync_comes_back_through_the_broker(rig: Rig) -> None:
    rig.file.append(b"record")
    client = rig.client()
    assert rig.exchange(client, b"sync\n", 8) == b"finished"
    assert rig.broker.finished_results == [None]


def test_a_job_comes_back_with_its_result(rig: Rig) -> None:
    client = rig.client()
    assert rig.exchange(client, b"job done\n", 8) == b"finished"
    assert rig.broker.finished_results == [b"done"]


def test_a_background_job_comes_back_with_its_result(rig: Rig) -> None:
    client = rig.client()
    assert rig.exchange(client, b"steps 3\n", 8) == b"finished"
    assert rig.broker.finished_results == [3]


def test_a_background_job_that_fails_comes_back_with_its_error(rig: Rig) -> None:
    client = rig.client()
    assert rig.exchange(client, b"steps 0\n", 8) == b"finished"
    assert isinstance(rig.broker.finished_results[0], ZeroDivisionError)


def test_a_connection_silent_for_too_long_is_closed(rig: Rig) -> None:
    client = rig.client()
    rig.pump.close_idle(60_000_000)
    assert len(rig.pump.connections) == 1
    rig.pump.close_idle(-1)
    assert client.recv(1) == b""
