"""The reserve of a log directory: free space is queried at a bounded rate, the directory is full from the
reserve on, and a few free bytes do not end an episode.
"""

import pytest

from sparklog.model import Instant, Micros, Millis
from sparklog_server.agenda import Agenda
from sparklog_server.disk.door import OutOfDescriptors, StorageError
from sparklog_server.replica.disk_reserve import DiskReserve

MIB = 1 << 20


class World:
    def __init__(self, *, total: int = 1000 * MIB, usable: int = 500 * MIB, reserve: int = -1) -> None:
        self.total, self.usable = total, usable
        self.asked = 0
        self.is_failing = False
        self.lines: list[str] = []
        self.ms = 0
        self.room = DiskReserve(
            "/data",
            self._ask,
            Agenda(),
            reserve_bytes=reserve,
            trace=lambda event, **_: self.lines.append(event),
        )

    def _ask(self) -> tuple[int, int]:
        self.asked += 1
        if self.is_failing:
            raise StorageError("/data", "statvfs", "Input/output error")
        return self.total, self.usable

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.ms * 1000), Millis(self.ms))

    def takes(self, size: int) -> bool:
        if is_taken := self.room.takes(size, self.now):
            self.usable -= size
        return is_taken


def test_the_system_is_asked_once_in_a_hundred_milliseconds_and_for_each_sixteen_mebibytes() -> None:
    world = World()
    assert all(world.takes(100) for _ in range(1000))
    assert world.asked == 1
    world.ms = 100
    assert world.takes(100)
    assert world.asked == 2
    assert all(world.takes(MIB) for _ in range(64))
    assert 4 <= world.asked - 2 <= 5


@pytest.mark.parametrize(
    ("total", "reserve"), [(1000 * MIB, 10 * MIB), (1 << 50, 1 << 30), (16 * MIB, 16 * MIB // 100)]
)
def test_the_reserve_is_one_percent_and_one_gibibyte_at_most(total: int, reserve: int) -> None:
    assert World(total=total, usable=reserve + 5).takes(5)
    assert not World(total=total, usable=reserve + 5).takes(6)


def test_no_byte_of_the_reserve_is_taken_however_many_batches_come_at_once() -> None:
    world = World(usable=20 * MIB, reserve=MIB)
    while world.takes(70_000):
        pass
    assert MIB <= world.usable < MIB + 70_000


def test_while_the_disk_is_full_all_are_refused_and_the_system_is_asked_no_more_often() -> None:
    world = World(usable=MIB, reserve=MIB)
    assert not any(world.takes(size) for size in (1, 100, 1, 5000) * 100)
    assert world.asked == 1
    assert world.lines == ["disk-full"]


def test_an_episode_ends_when_more_is_free_than_the_reserve_and_what_was_refused() -> None:
    world = World(usable=8 * MIB, reserve=8 * MIB)
    assert not world.takes(2 * MIB)
    for free in (8 * MIB + 1, 9 * MIB, 10 * MIB - 1):
        world.ms += 100
        world.usable = free
        assert not world.takes(1)
    world.ms += 100
    world.usable = 10 * MIB
    assert world.takes(1)
    assert world.lines == ["disk-full", "disk-no-longer-full"]


def test_a_full_disk_is_looked_at_every_second_and_once_more_when_there_is_room() -> None:
    world = World(usable=0)
    assert world.room.look_at_us is None
    assert not world.takes(1)
    looks = []
    for world.ms in range(0, 4000, 100):
        if world.ms == 2500:
            world.usable = 500 * MIB
        if world.room.is_look_due(world.now):
            looks.append((world.ms, world.room.is_full))
    assert looks == [(1000, True), (2000, True), (3000, False)]
    assert world.room.look_at_us is None


def test_a_write_that_is_refused_though_there_seemed_to_be_room_begins_an_episode() -> None:
    world = World()
    assert world.takes(1)
    world.room.ran_out(
        StorageError("/data/t-0/0.log", "append", "Disk quota exceeded", is_full=True), world.now
    )
    assert not world.takes(1)
    assert "Disk quota exceeded" in world.room.refusal
    world.ms = 999
    assert not world.takes(1)
    for world.ms in (1500, 3000):  # tried once, and refused again
        assert world.takes(1)
        world.room.ran_out(
            StorageError("/data/t-0/0.log", "append", "Disk quota exceeded", is_full=True), world.now
        )
        assert not world.takes(1)
        assert world.lines == ["disk-full"]
    for world.ms, lines in ((4000, ["disk-full"]), (5000, ["disk-full", "disk-no-longer-full"])):
        assert world.takes(1)
        assert world.lines == lines


def test_a_system_that_cannot_say_how_much_is_free_refuses_nothing() -> None:
    world = World(usable=0)
    world.is_failing = True
    assert world.takes(5)


def test_work_put_off_for_want_of_descriptors_is_tried_again_though_the_disk_has_room() -> None:
    world = World()
    world.room.ran_out(OutOfDescriptors("/data/t-0", "open", "Too many open files"), world.now)
    assert not world.room.is_full
    world.ms = 60_000
    assert world.room.is_look_due(world.now)
    assert not world.room.is_look_due(world.now)
    assert world.lines == ["out-of-descriptors"]


@pytest.mark.parametrize("reserve", [-1, 0, MIB])
def test_a_refusal_of_a_name_refuses_no_producer_while_the_reserve_is_free(reserve: int) -> None:
    world = World(usable=11 * MIB, reserve=reserve)
    for world.ms in range(0, 5000, 500):
        world.room.ran_out(
            StorageError("/data/u-0", "mkdir", "No space left on device", is_full=True), world.now
        )
        assert world.takes(1)
        assert world.room.is_look_due(world.now) == (world.ms in (1000, 2500, 4000))
    assert set(world.lines) == {"disk-cannot-add-files"}


@pytest.mark.parametrize("reserve", [-1, 0, MIB])
def test_a_refusal_of_a_name_begins_an_episode_where_the_reserve_is_all_that_is_left(reserve: int) -> None:
    world = World(total=100 * MIB, usable=max(reserve, 0) if reserve >= 0 else MIB, reserve=reserve)
    world.room.ran_out(StorageError("/data/u-0", "mkdir", "No space left on device", is_full=True), world.now)
    assert world.room.is_full
    assert not world.takes(1)


def test_refusals_of_a_name_do_not_keep_an_episode_from_its_end() -> None:
    world = World()
    world.room.ran_out(
        StorageError("/data/t-0/0.log", "append", "Disk quota exceeded", is_full=True), world.now
    )
    for world.ms in range(0, 3000, 100):
        world.room.ran_out(
            StorageError("/data/u-0", "rename", "Disk quota exceeded", is_full=True), world.now
        )
        assert world.takes(1) == (world.ms >= 1000)
    assert world.lines[:2] == ["disk-full", "disk-no-longer-full"]
