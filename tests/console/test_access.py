"""Sessions: signed, finite, and bounded in number."""

import anyio
import pytest

from sparklog.client.settings import ClientSettings
from sparklog_server.console.access import IDLE_S, LIFETIME_S, SESSIONS_MAX, Sessions
from sparklog_server.console.clusters import Cluster


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock=clock)


def cluster() -> Cluster:
    return Cluster(ClientSettings(), anyio.CapacityLimiter(1))


def test_a_cookie_is_read_only_where_it_was_signed_and_until_it_expires(
    sessions: Sessions, clock: Clock
) -> None:
    cookie = sessions.new_id()
    text = sessions.read(cookie)
    assert text is not None
    name, expiry, signature = cookie.split(".")
    later = str(int(expiry) + 1)
    for forged in (
        "",
        ".",
        "..",
        "a.b.c",
        f"{name}.{later}.{signature}",
        f"x{cookie}",
        cookie[:-1],
        f"{cookie}é",
    ):
        assert sessions.read(forged) is None
    assert Sessions(clock=clock).read(cookie) is None
    clock.now_s += LIFETIME_S
    assert sessions.read(cookie) is None


def test_a_note_is_no_session(sessions: Sessions) -> None:
    assert sessions.read_note(sessions.note("<done> é")) == "<done> é"
    assert sessions.read_note("done.9999999999.00") is None


def test_a_token_belongs_to_one_session(sessions: Sessions) -> None:
    token = sessions.csrf_token("one")
    assert sessions.is_csrf_token("one", token)
    assert not sessions.is_csrf_token("two", token)
    assert not sessions.is_csrf_token("one", "")
    assert not sessions.is_csrf_token("one", "é")


def test_a_session_ends_when_it_is_idle_and_at_its_age(sessions: Sessions, clock: Clock) -> None:
    sessions.begin("a", "alice", cluster())
    clock.now_s += IDLE_S - 1
    assert sessions.find("a") is not None
    clock.now_s += IDLE_S
    assert sessions.find("a") is None
    session = sessions.begin("b", "bob", cluster())
    for _ in range(LIFETIME_S // (IDLE_S - 1)):
        clock.now_s += IDLE_S - 1
        sessions.find("b")
    assert session.is_over(clock.now_s + IDLE_S)
    clock.now_s += IDLE_S - 1
    assert sessions.find("b") is None


def test_the_session_that_is_idle_longest_ends_at_the_bound(sessions: Sessions, clock: Clock) -> None:
    for number in range(SESSIONS_MAX):
        clock.now_s += 1
        sessions.begin(str(number), "alice", cluster())
    sessions.find("0")
    sessions.begin("one more", "alice", cluster())
    assert sessions.find("0") is not None
    assert sessions.find("1") is None
    assert sessions.find("one more") is not None
