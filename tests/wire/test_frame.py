"""Framing: every cut of the stream gives the same frames, within the memory that is promised."""

import resource
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from sparklog.errors import DecodeError
from sparklog.wire.frame import (
    GROWN_IN_PLACE_BYTES,
    GROWTH_BYTES,
    RECEIVE_BUFFER_BYTES,
    RECEIVED_BYTES_MAX,
    SMALL_FRAMES_BYTES,
    SPARE_BYTES,
    SPARES_MAX,
    Framer,
    spare_buffers,
)


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def feed(framer: Framer, octets: bytes, *, piece: int) -> list[bytes]:
    """Hands `octets` over in pieces of at most `piece` bytes, as a socket would."""
    frames = []
    while octets:
        buffer = framer.buffer()
        size = min(piece, len(buffer), len(octets))
        buffer[:size] = octets[:size]
        frames += [bytes(frame) for frame in framer.received(size)]
        octets = octets[size:]
    return frames


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 7, 64, 1000, 1 << 20])
def test_the_frames_are_the_same_however_the_stream_is_cut(piece: int) -> None:
    bodies = [b"", b"a", b"bc", b"d" * 300, b"", b"e" * 5000, b"f"]
    assert feed(Framer(frame_bytes_max=5000), framed(*bodies) * 3, piece=piece) == bodies * 3


def test_framers_share_one_receive_buffer() -> None:
    shared, random = bytearray(512), Random(5)
    framers = [Framer(frame_bytes_max=4000, shared=shared) for _ in range(5)]
    streams = [[random.randbytes(random.choice((0, 3, 200, 2000))) for _ in range(20)] for _ in framers]
    pending = [framed(*bodies) for bodies in streams]
    frames: list[list[bytes]] = [[] for _ in framers]
    while any(pending):
        index = random.choice([index for index, octets in enumerate(pending) if octets])
        size = random.randint(1, 300)
        frames[index] += feed(framers[index], pending[index][:size], piece=size)
        pending[index] = pending[index][size:]
    assert frames == streams


def test_a_frame_that_arrives_whole_is_a_writable_view_of_the_shared_buffer() -> None:
    shared = bytearray(64)
    framer = Framer(frame_bytes_max=100, shared=shared)
    framer.buffer()[:9] = framed(b"hello")
    (frame,) = framer.received(9)
    frame[0] = ord("j")
    assert (bytes(frame), shared[4:9], framer.held_bytes) == (b"jello", b"jello", 0)


def test_the_rest_of_a_frame_is_received_where_it_belongs() -> None:
    framer = Framer(frame_bytes_max=1000, shared=bytearray(64))
    framer.buffer()[:10] = framed(b"x" * 100)[:10]
    assert framer.received(10) == []
    assert len(framer.buffer()) == 94
    framer.buffer()[:94] = b"x" * 94
    (frame,) = framer.received(94)
    assert bytes(frame) == b"x" * 100
    assert framer.held_bytes == 0


def test_a_stream_of_small_frames_receives_few_at_once() -> None:
    framer = Framer(frame_bytes_max=1 << 20)
    rooms = []
    for bodies in ([b""], [b"x" * 20_000], [b"", b"x" * 1000], [b"x" * 100_000], [b""]):
        rooms.append(len(framer.buffer()))
        feed(framer, framed(*bodies), piece=1 << 20)
    small, large = SMALL_FRAMES_BYTES, RECEIVE_BUFFER_BYTES
    assert rooms == [small, small, large, small, large]


def test_a_large_frame_is_received_in_limited_pieces() -> None:
    framer = Framer(frame_bytes_max=100 << 20)
    octets, arrived, rooms, frames = framed(b"x" * (16 << 20)), 0, [], []
    while not frames:
        buffer = framer.buffer()
        rooms.append(len(buffer))
        part = octets[arrived : arrived + len(buffer)]
        buffer[: len(part)] = part
        arrived += len(part)
        frames = framer.received(len(part))
    assert max(rooms) == RECEIVED_BYTES_MAX


def test_an_announced_length_costs_no_memory_until_its_bytes_arrive() -> None:
    framer = Framer(frame_bytes_max=100 << 20, shared=bytearray(65536))
    octets, arrived = (100 << 20).to_bytes(4, "big") + bytes(1 << 20), 0
    while arrived < len(octets):
        buffer = framer.buffer()
        size = min(len(buffer), 30000, len(octets) - arrived)
        buffer[:size] = octets[arrived : arrived + size]
        arrived += size
        assert framer.received(size) == []
        assert framer.held_bytes <= 2 * arrived + GROWTH_BYTES


@pytest.mark.parametrize(
    "prefix", ["ff ff ff ff", "80 00 00 00", "00 00 03 e9", "7f ff ff ff", "16 03 01 02"]
)
def test_a_length_out_of_bounds_is_refused_as_soon_as_it_is_known(prefix: str) -> None:
    framer = Framer(frame_bytes_max=1000)
    with pytest.raises(DecodeError, match="where 1000 are allowed"):
        feed(framer, bytes.fromhex(prefix), piece=1)


def test_the_limit_may_be_raised_after_authentication() -> None:
    framer = Framer(frame_bytes_max=4)
    assert feed(framer, framed(b"four"), piece=100) == [b"four"]
    framer.frame_bytes_max = 5
    assert feed(framer, framed(b"fives"), piece=100) == [b"fives"]


def test_nothing_received_is_nothing_framed() -> None:
    framer = Framer(frame_bytes_max=100)
    assert framer.received(0) == []
    assert feed(framer, framed(b"abc")[:3], piece=3) == []
    framer.buffer()
    assert framer.received(0) == []
    assert feed(framer, framed(b"abc")[3:], piece=9) == [b"abc"]


def test_a_frame_in_pieces_borrows_a_spare_buffer_and_gives_it_back() -> None:
    spares = [bytearray(SPARE_BYTES)]
    framer, other = (Framer(frame_bytes_max=5 << 20, shared=bytearray(64), spares=spares) for _ in range(2))
    for _ in range(3):
        framer.buffer()[:64] = framed(b"x" * 1000)[:64]
        assert framer.received(64) == []
        assert spares == []
        assert len(framer.buffer()) == 940
        assert feed(other, framed(b"y" * 1000), piece=64) == [b"y" * 1000]
        assert feed(framer, b"x" * 940, piece=300) == [b"x" * 1000]
        framer.buffer()
        assert len(spares) == 1


def test_a_spare_buffer_takes_memory_at_its_first_use_and_keeps_it() -> None:
    spares = spare_buffers()
    assert [len(spare) for spare in spares] == [0] * SPARES_MAX
    framer = Framer(frame_bytes_max=5000, shared=bytearray(64), spares=spares)
    for _ in range(2):
        assert feed(framer, framed(b"x" * 1000), piece=64) == [b"x" * 1000]
        framer.buffer()
        assert [len(spare) for spare in spares] == [0] * (SPARES_MAX - 1) + [SPARE_BYTES]


def test_a_stream_that_ends_within_a_frame_gives_its_spare_buffer_back() -> None:
    spares = [bytearray(SPARE_BYTES)]
    framer = Framer(frame_bytes_max=5000, shared=bytearray(64), spares=spares)
    feed(framer, framed(b"x" * 1000)[:500], piece=64)
    assert spares == []
    framer.release()
    assert len(spares) == 1


def test_a_frame_larger_than_a_spare_buffer_grows_its_own() -> None:
    spares = [bytearray(SPARE_BYTES)]
    framer = Framer(frame_bytes_max=SPARE_BYTES + 100, spares=spares)
    assert feed(framer, framed(b"z" * (SPARE_BYTES + 1)), piece=1 << 20) == [b"z" * (SPARE_BYTES + 1)]
    assert len(spares) == 1


@pytest.mark.parametrize("size", [1 << 20, 5 << 20])
def test_a_frame_for_which_there_is_no_memory_is_received_on_once_there_is_some(size: int) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        assert alone.submit(starved, size).result() == [b"x" * (GROWN_IN_PLACE_BYTES + size)]


def starved(size: int) -> list[bytes]:
    """The frames of a process that has no memory when its buffer of `size` bytes or a little more must
    grow.
    """
    framer = Framer(frame_bytes_max=1 << 30)
    octets = framed(b"x" * (GROWN_IN_PLACE_BYTES + size))
    feed(framer, octets[:size], piece=1 << 20)
    framer.buffer()
    held = framer.held_bytes
    feed(framer, octets[size:held], piece=1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), limits[1]))
    hoard: list[bytearray] = []  # the heap's, too
    with pytest.raises(MemoryError):
        hoard.extend(bytearray(1 << 20) for _ in count())
    with pytest.raises(MemoryError):
        framer.buffer()
    resource.setrlimit(resource.RLIMIT_AS, limits)
    assert held <= framer.held_bytes <= held + (2 << 20)
    return feed(framer, octets[held:], piece=1 << 20)
