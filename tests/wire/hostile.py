"""The bytes of a hostile peer: valid bytes bent in one or several ways."""

from collections.abc import Callable, Iterator
from random import Random

TELLING = (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
LIES = (
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\x80\0",
    b"\xff\xff\xff\xff\x0f",
)
LONG_VARINTS = (b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x7f", b"\xff" * 11, b"\x80\x80\x80\x80\x10")


def mutations(octets: bytes, random: Random, *, count: int) -> Iterator[bytes]:
    """`count` bent copies of `octets`."""
    for _ in range(count):
        bent = octets
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            bent = random.choice(WAYS)(bent, random)
        yield bent


def truncations(octets: bytes) -> Iterator[bytes]:
    """Every proper prefix."""
    return (octets[:size] for size in range(len(octets)))


def cut(octets: bytes, random: Random) -> bytes:
    return octets[: random.randint(0, len(octets))]


def flip(octets: bytes, random: Random) -> bytes:
    return replace(octets, random, bytes([random.randrange(256)]))


def tell(octets: bytes, random: Random) -> bytes:
    return replace(octets, random, bytes([random.choice(TELLING)]))


def lie(octets: bytes, random: Random) -> bytes:
    return replace(octets, random, random.choice(LIES))


def overlong(octets: bytes, random: Random) -> bytes:
    return replace(octets, random, random.choice(LONG_VARINTS))


def insert(octets: bytes, random: Random) -> bytes:
    place = random.randint(0, len(octets))
    return octets[:place] + random.randbytes(random.randint(1, 8)) + octets[place:]


def double(octets: bytes, random: Random) -> bytes:
    start = random.randint(0, len(octets))
    return octets[:start] + octets[start : start + 40] * 2 + octets[start + 40 :]


def noise(octets: bytes, random: Random) -> bytes:
    return random.randbytes(min(len(octets), 200))


def replace(octets: bytes, random: Random, by: bytes) -> bytes:
    place = random.randint(0, max(0, len(octets) - 1))
    return octets[:place] + by + octets[place + len(by) :]


WAYS: tuple[Callable[[bytes, Random], bytes], ...] = (
    cut,
    flip,
    tell,
    tell,
    lie,
    overlong,
    insert,
    double,
    noise,
)
