"""The byte stream of a connection over a plain socket."""

import os
import socket
from pathlib import Path

import pytest

from sparklog_server.daemon.transport import PlainTransport, Transport


def test_pieces_and_a_slice_leave_in_order_and_a_call_that_would_wait_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport: Transport = PlainTransport(ours)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    assert transport.send(b"a") == 1
    assert transport.send_gathered([b"bc", bytearray(b"d")], is_more_to_come=True) == 3
    assert transport.send_slice(descriptor, 2, 3) == 3
    assert transport.send_slice(descriptor, 10, 1) == 0
    assert theirs.recv(100) == b"abcd234"
    buffer = memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        transport.receive_into(buffer)
    theirs.sendall(b"xy")
    assert (transport.receive_into(buffer), bytes(buffer[:2])) == (2, b"xy")
    theirs.close()
    assert transport.receive_into(buffer) == 0
    transport.close()
    os.close(descriptor)
