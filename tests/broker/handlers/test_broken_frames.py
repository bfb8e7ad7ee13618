"""Bytes in a log that no batch can begin with: a fetch there is refused by name, and what can be found
beside them is served.
"""

from sparklog.errors import ErrorCode
from sparklog.record.batch import iterate_headers
from sparklog.wire.messages.fetch import FetchResponse
from tests.broker.world import FETCH_BY_NAME, fetch, fetched
from tests.log_tools.corruption import LOG, flip, served, world_over

MAGIC = 16


def test_a_fetch_at_a_broken_frame_is_refused_once_in_the_log_and_each_time_in_the_answer() -> None:
    before = served(is_clean=True)
    files = dict(before.files)
    path = flip(".log", 1, batch=5, byte=MAGIC)(files)
    assert path is not None
    places = list(iterate_headers(before.files[path]))
    world = world_over(files)
    world.node.start()
    world.settle()
    client = world.node.connect()
    position, broken = places[5]

    def read(offset: int) -> tuple[int, list[bytes]]:
        return fetched(
            world.ask(
                client, fetch("t", offset, max_wait_ms=0, max_bytes=60_000), FETCH_BY_NAME, FetchResponse
            )
        )

    for _ in range(3):
        assert read(broken.base_offset) == (ErrorCode.CORRUPT_MESSAGE, [])
    (line,) = [line for line in world.node.trace if line.startswith("batch-unreadable")]
    assert f"partition=t-0 file={path} byte={position} " in line
    assert f"sparklog log repair {LOG.rpartition('/')[0]}" in line
    for at in (3, 8):
        code, values = read(places[at][1].base_offset)
        assert code == 0
        assert values[0] == before.records[places[at][1].base_offset]
