"""PLAIN on the broker: the users of a JAAS entry, and hostile clients."""

import pytest

from sparklog.client.sasl.jaas import parse_jaas
from sparklog.client.sasl.machines import PlainMachine
from sparklog.model import Instant, Micros, Millis
from sparklog_server.security.plain import PlainServer, PlainUsers
from sparklog_server.security.sasl import Authenticated, SaslRefused

NOW = Instant(Micros(0), Millis(0))
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_ü="\u202eb";'
USERS = PlainUsers(parse_jaas(JAAS, "k").options, b"key")


def respond(response: bytes) -> Authenticated:
    return PlainServer(USERS).respond(response, NOW)


def test_the_right_password_passes() -> None:
    assert respond(PlainMachine("alice", "a").first()) == Authenticated("alice")
    assert respond(PlainMachine("ü", "\u202eb").first()) == Authenticated("ü")
    assert respond(b"alice\0alice\0a") == Authenticated("alice")


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"\0\0\0\0\0", "expected 3 tokens, got 4"),
        (b"\0alice", "expected 3 tokens, got 2"),
        (b"\0\0a", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0alice\0b", "Invalid username or password"),
        (b"\0mallory\0a", "Invalid username or password"),
        (b"\0alice\0" + b"a" * 100_000, "Invalid username or password"),
        (b"\0\xe2\x80\xaealice\0a", "Invalid username or password"),
        (b"admin\0alice\0a", "authorization id that is different"),
        (b"\0alice \0a", "Invalid username or password"),
    ],
)
def test_anything_else_is_refused_in_kafkas_words(response: bytes, shown: str) -> None:
    with pytest.raises(SaslRefused) as refused:
        respond(response)
    assert shown in (refused.value.shown or "")


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(SaslRefused, match="UTF-8"):
        respond(b"\0\xff\0a")


def test_an_empty_list_of_users_admits_no_user() -> None:
    users = PlainUsers({"username": "alice", "password": "a"}, b"key")
    assert len(users) == 0
    with pytest.raises(SaslRefused):
        PlainServer(users).respond(b"\0alice\0a", NOW)


def test_no_repr_has_a_password() -> None:
    module = parse_jaas('PlainLoginModule required user_a="hunter2";', "k")
    assert (
        "hunter2" not in f"{module!r} {PlainUsers(module.options, b'key')!r} {PlainMachine('a', 'hunter2')!r}"
    )
