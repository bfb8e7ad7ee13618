"""The memory of replies is bounded over all sessions: a client that reads is served, another is closed."""

from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.frame import Framer
from sparklog_server.broker.memory import STALLED_US, ReplyMemory
from sparklog_server.broker.session import Session

LIMIT = 1000


def at(mono_us: int) -> Instant:
    return Instant(Micros(mono_us), Millis(0))


def sessions(count: int) -> list[Session]:
    framers = (Framer(frame_bytes_max=100) for _ in range(count))
    return [
        Session(SessionId(index), framer, listener="L", peer_address="p")
        for index, framer in enumerate(framers)
    ]


def test_sessions_that_hold_replies_starve_beyond_half_of_the_limit_and_others_do_not() -> None:
    memory = ReplyMemory(LIMIT)
    slow, slower, quick = sessions(3)
    memory.unread(slow, 300, at(0), has_read=True)
    assert not memory.starves(slow)
    memory.unread(slower, 300, at(1), has_read=True)
    assert (memory.starves(slow), memory.starves(slower), memory.starves(quick)) == (True, True, False)


def test_a_session_that_has_read_its_replies_is_served_again_while_others_starve() -> None:
    memory = ReplyMemory(LIMIT)
    slow, slower, slowest = sessions(3)
    for session in (slow, slower, slowest):
        memory.unread(session, 330, at(0), has_read=True)
        memory.starves(session)
    memory.starves(slow)
    assert memory.take_readable() == []
    memory.unread(slow, 0, at(1), has_read=True)
    assert memory.take_readable() == [slow]
    memory.unread(slower, 0, at(2), has_read=True)
    assert memory.take_readable() == [slower, slowest]
    assert memory.take_readable() == []


def test_beyond_the_limit_sessions_are_closed_that_read_longest_ago_until_it_is_kept() -> None:
    memory = ReplyMemory(LIMIT)
    first, second, third = sessions(3)
    for time_us, session in enumerate((first, second, third)):
        memory.unread(session, 400, at(time_us), has_read=True)
    memory.unread(first, 390, at(3), has_read=True)
    assert memory.take_excess(at(4)) == [second]
    memory.forget(second)
    assert memory.take_excess(at(5)) == []
    assert memory.total_bytes == 790


def test_a_reply_larger_than_the_limit_reaches_a_client_that_reads_it_and_not_one_that_stalls() -> None:
    memory = ReplyMemory(LIMIT)
    (reader,) = sessions(1)
    memory.unread(reader, 5000, at(0), has_read=True)
    memory.unread(reader, 4000, at(STALLED_US), has_read=True)
    assert memory.take_excess(at(STALLED_US + 1)) == []
    assert memory.deadline() == 2 * STALLED_US
    assert memory.take_excess(at(2 * STALLED_US)) == [reader]
    memory.forget(reader)
    assert (memory.total_bytes, memory.deadline(), memory.is_short) == (0, None, False)


def test_a_client_that_reads_is_not_closed_though_the_memory_of_its_replies_stays_as_it_is_or_grows() -> None:
    memory = ReplyMemory(LIMIT)
    reader, silent = sessions(2)
    memory.unread(reader, 600, at(0), has_read=True)
    memory.unread(silent, 100, at(1), has_read=True)
    memory.unread(reader, 600, at(5), has_read=True)
    memory.unread(reader, 650, at(6), has_read=True)
    memory.unread(silent, 200, at(7), has_read=False)
    assert memory.deadline() == 1 + STALLED_US
    assert memory.take_excess(at(5 + STALLED_US)) == [silent]


def test_a_session_that_has_read_all_it_was_sent_is_not_closed_while_its_answers_wait_behind_an_earlier_request() -> (  # noqa: E501
    None
):
    memory = ReplyMemory(LIMIT)
    silent, waiting = sessions(2)
    memory.owed(waiting, 400)
    memory.unread(silent, 400, at(1), has_read=True)
    assert memory.take_excess(at(1 + STALLED_US)) == [silent]
    memory.forget(silent)
    memory.owed(waiting, 200)
    assert (memory.is_short, memory.take_excess(at(10 * STALLED_US)), memory.deadline()) == (True, [], None)


def test_beyond_the_limit_answers_behind_an_earlier_request_count_too() -> None:
    memory = ReplyMemory(LIMIT)
    first, second = sessions(2)
    memory.owed(first, 600)
    memory.owed(second, 600)
    assert memory.take_excess(at(2)) == [first]


def test_answers_that_are_made_and_those_behind_an_earlier_request_count() -> None:
    memory = ReplyMemory(LIMIT)
    (session,) = sessions(1)
    memory.build(300)
    memory.owed(session, 201)
    assert (memory.total_bytes, memory.is_short, memory.starves(session)) == (501, True, True)
    memory.build(-300)
    memory.owed(session, -201)
    assert (memory.total_bytes, memory.take_readable()) == (0, [session])


def test_replies_that_are_made_beyond_half_of_the_limit_close_no_session_that_holds_little() -> None:
    memory = ReplyMemory(LIMIT)
    first, second = sessions(2)
    memory.build(900)
    memory.unread(first, 100, at(0), has_read=True)
    memory.unread(second, 400, at(1), has_read=True)
    assert memory.take_excess(at(2)) == []
    memory.unread(second, 401, at(2), has_read=True)
    assert memory.take_excess(at(3)) == [first]
