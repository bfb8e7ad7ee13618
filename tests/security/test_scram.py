"""SCRAM on both sides: the vectors of RFC 5802 and 7677, and hostile clients and brokers."""

import tracemalloc
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.failures import AuthenticationFailed
from sparklog.client.sasl import scram_messages as scram
from sparklog.client.sasl.login import PasswordLogin
from sparklog.client.sasl.machines import ScramMachine
from sparklog.model import Instant, Micros, Millis
from sparklog_server.security.sasl import Authenticated, Challenge, SaslRefused, Working
from sparklog_server.security.scram import (
    NUMBER_OF,
    ScramAccounts,
    ScramCredential,
    ScramServer,
    TokenFound,
    absent_credential,
    credential_of,
    kafka_salt,
    shape_of,
)

NOW = Instant(Micros(0), Millis(1_000_000))
SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_NONCE = b64decode("rOprNGfwEbeRWgbNEkqO")


def accounts(
    mechanism: str = SHA256,
    users: dict[str, ScramCredential] | None = None,
    tokens: dict[str, TokenFound] | None = None,
) -> ScramAccounts:
    def user(name: str, number: int) -> ScramCredential | None:
        return (users or {}).get(name) if number == NUMBER_OF[mechanism] else None

    return ScramAccounts(mechanism, user, (tokens or {}).get, lambda: b"cluster secret")


def server(users: dict[str, ScramCredential] | None = None, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(accounts(users=users), nonce)


def login(user: str, password: str, mechanism: str = SHA256, *, is_token: bool = False) -> PasswordLogin:
    return PasswordLogin(mechanism, user, password, lambda size: b"n" * size, is_token=is_token)


def exchange(client: PasswordLogin, broker: ScramServer, now: Instant = NOW) -> Authenticated:
    """The whole conversation; raises the refusal of either side."""
    machine = client.machine()
    step = broker.respond(machine.first(), now)
    while True:
        if isinstance(step, Working):
            step = step.then(step.job(), now)
        elif isinstance(step, Challenge):
            step = broker.respond(machine.next(step.data), now)
        else:
            assert isinstance(step, Authenticated)
            machine.next(step.data)
            assert machine.is_complete
            return step


# -- vectors


def test_the_broker_speaks_the_example_of_rfc_7677() -> None:
    broker = server({"user": credential_of(SHA256, "pencil", SALT, 4096)})
    first = broker.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW)
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first == Challenge(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = broker.respond(b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", NOW)
    assert final == Authenticated("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_client_speaks_the_example_of_rfc_7677() -> None:
    client = PasswordLogin(SHA256, "user", "pencil", lambda _: CLIENT_NONCE).machine()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    response = client.next(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert response == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert client.is_complete


def test_the_formulas_give_the_example_of_rfc_5802() -> None:
    salted = scram.salted_password("sha1", "pencil", b64decode("QSXCR+Q6sek8bf92"), 4096)
    exchanged = (
        b"n=user,r=fyko+d2lbbFgONRv9qkxdawL,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,"
        b"s=QSXCR+Q6sek8bf92,i=4096,c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    )
    key = scram.client_key("sha1", salted)
    proof = scram.xor(key, scram.signature("sha1", scram.stored_key("sha1", key), exchanged))
    assert scram.base64(proof) == "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    signed = scram.signature("sha1", scram.server_key("sha1", salted), exchanged)
    assert scram.base64(signed) == "rmF9pqV8S7suAoZWja4dJRkFsKQ="


# -- both sides together


@given(
    st.sampled_from([SHA256, SHA512]),
    st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=20),
    st.text(max_size=20),
)
def test_every_user_name_of_ascii_and_every_password_pass(mechanism: str, user: str, password: str) -> None:
    users = {user: credential_of(mechanism, password, b"salt", 4096)}
    told = exchange(login(user, password, mechanism), ScramServer(accounts(mechanism, users), "nonce"))
    assert told.user == user


def test_a_name_with_signs_of_the_grammar_is_escaped() -> None:
    assert login("a=b,c", "p").machine().first().startswith(b"n,,n=a=3Db=2Cc,r=")
    assert scram.name_of(scram.escaped("=2C,=3D")) == "=2C,=3D"


@pytest.mark.parametrize("user", ["alice", "unknown"])
def test_a_wrong_password_and_an_unknown_user_fail_alike(user: str) -> None:
    users = {"alice": credential_of(SHA256, "secret", b"salt", 4096)}
    with pytest.raises(SaslRefused, match="the proof is not that of the user's password") as refused:
        exchange(login(user, "guess"), server(users))
    assert refused.value.shown is None


def test_an_unknown_user_gets_the_same_salt_each_time_and_on_each_node() -> None:
    def salt_of(user: str) -> tuple[bytes, int]:
        challenge = server().respond(f"n,,n={user},r=abc".encode(), NOW)
        assert isinstance(challenge, Challenge)
        told = scram.parse_server_first(challenge.data)
        return told.salt, told.iterations

    assert salt_of("mallory") == salt_of("mallory")
    assert salt_of("mallory") != salt_of("trudy")
    salt, iterations = salt_of("mallory")
    assert (len(salt) in (24, 25, 26), salt.isalnum(), iterations) == (True, True, 4096)


@pytest.mark.parametrize("salt", [kafka_salt(bytes(range(17))), b"salt", bytes(range(24)), b""])
def test_an_unknown_user_has_the_iterations_and_the_kind_of_salt_of_those_that_exist(salt: bytes) -> None:
    shapes = {shape_of(salt, 8192): 3}
    for user in ("mallory", "trudy"):
        absent = absent_credential(SHA512, user, b"secret", shapes)
        assert shape_of(absent.salt, absent.iterations) == shape_of(salt, 8192)
        assert (len(absent.stored_key), len(absent.server_key)) == (64, 64)


def test_unknown_users_have_each_shape_as_often_as_those_that_exist_and_keep_it_when_one_comes() -> None:
    shapes = {shape_of(b"s" * 25, 8192): 50, shape_of(bytes(24), 4096): 50}
    users = [f"user-{number}" for number in range(400)]

    def drawn() -> list[tuple[bytes, int]]:
        told = [absent_credential(SHA256, user, b"secret", shapes) for user in users]
        return [(one.salt, one.iterations) for one in told]

    before = drawn()
    assert 120 < sum(iterations == 8192 for _, iterations in before) < 280
    shapes[shape_of(bytes(24), 4096)] += 1
    assert sum(one != two for one, two in zip(before, drawn(), strict=True)) < 20


def test_a_proof_of_the_absent_credential_is_no_password() -> None:
    """Also a client that knows the stored key of an unknown user must not pass."""
    absent, is_known = accounts().user("mallory")
    assert not is_known
    machine = server()
    challenge = machine.respond(b"n,,n=mallory,r=abc", NOW)
    assert isinstance(challenge, Challenge)
    bare = b"c=biws,r=abc" + SERVER_NONCE.encode()
    exchanged = b",".join((b"n=mallory,r=abc", challenge.data, bare))
    signed = scram.signature("sha256", absent.stored_key, exchanged)
    with pytest.raises(SaslRefused):
        machine.respond(bare + b",p=" + scram.base64(signed).encode(), NOW)


# -- tokens


def test_a_token_authenticates_as_its_owner_until_it_ends() -> None:
    tokens = {"id-1": TokenFound("alice", 2_000_000, "aG1hYw==")}
    known = accounts(tokens=tokens)
    for _ in range(2):  # the second time without a job
        told = exchange(login("id-1", "aG1hYw==", is_token=True), ScramServer(known, "x"))
        assert (told.user, told.expires_ms, told.token_id) == ("alice", 2_000_000, "id-1")
    assert isinstance(ScramServer(known, "x").respond(b"n,,n=id-1,r=a,tokenauth=true", NOW), Challenge)
    for user, password, now in (
        ("id-1", "other", NOW),
        ("id-2", "aG1hYw==", NOW),
        ("id-1", "aG1hYw==", Instant(Micros(0), Millis(2_000_001))),
    ):
        with pytest.raises(SaslRefused):
            exchange(login(user, password, is_token=True), ScramServer(known, "x"), now)


def test_a_token_is_no_user_and_a_user_no_token() -> None:
    users = {"alice": credential_of(SHA256, "p", b"salt", 4096)}
    known = accounts(users=users, tokens={"id-1": TokenFound("alice", 2_000_000, "q")})
    with pytest.raises(SaslRefused):
        exchange(login("id-1", "q"), ScramServer(known, "x"))
    with pytest.raises(SaslRefused):
        exchange(login("alice", "p", is_token=True), ScramServer(known, "x"))


# -- hostile clients


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=a,r=",
        b"n,,n=a",
        b"y,,n=a,r=abc",
        b"p=tls-unique,,n=a,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=a=2c,r=abc",
        b"n,,n=a,r=a b",
        b"n,,n=a,r=abc,",
        b"n,,n=a,r=abc,=x",
        b"n,,n=\xff,r=abc",
        "n,,n=\u202ealice,r=abc".encode(),
        "n,,n=ü,r=abc".encode(),
        b"n,,n=a\0,r=abc",
        b"c=biws,r=abc,p=AAAA",
        b"n,,n=" + b"a" * 500_000,
        b"n,," + b"m=x," * 100_000,
    ],
)
def test_bytes_that_are_no_first_message_are_refused(message: bytes) -> None:
    with pytest.raises(SaslRefused, match="not a client-first message") as refused:
        server().respond(message, NOW)
    assert refused.value.shown is None


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=abcX,p=AAAA",
        b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + b"A" * 40_000,
        b"c=eSws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"c=biws,r=foreign,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"n,,n=user,r=abc",
    ],
)
def test_a_final_message_that_does_not_belong_to_the_first_is_refused(final: bytes) -> None:
    broker = server({"user": credential_of(SHA256, "pencil", SALT, 4096)})
    broker.respond(b"n,,n=user,r=abc", NOW)
    with pytest.raises(SaslRefused):
        broker.respond(final, NOW)
    with pytest.raises(SaslRefused, match="after the end"):
        broker.respond(final, NOW)


def test_a_first_message_of_half_a_megabyte_is_refused_before_it_is_read() -> None:
    message = b"n,,n=" + b"a" * 500_000 + b",r=nonce"
    tracemalloc.start()
    try:
        with pytest.raises(scram.MessageInvalid, match="16384 are allowed"):
            scram.parse_client_first(message)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


def test_a_message_within_the_bound_takes_memory_in_proportion() -> None:
    message = b"n,,n=" + b"a" * 16_000 + b",r=nonce"
    tracemalloc.start()
    try:
        scram.parse_client_first(message)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(message)
    finally:
        tracemalloc.stop()


def test_a_foreign_authorization_id_is_refused() -> None:
    users = {"user": credential_of(SHA256, "p", b"salt", 4096)}
    assert isinstance(server(users).respond(b"n,a=user,n=user,r=abc", NOW), Challenge)
    with pytest.raises(SaslRefused, match="authorization id"):
        server(users).respond(b"n,a=admin,n=user,r=abc", NOW)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(first: bytes, final: bytes) -> None:
    broker = server({"user": credential_of(SHA256, "p", b"salt", 4096)})
    for message in (first, final):
        try:
            assert not isinstance(broker.respond(message, NOW), Authenticated)
        except SaslRefused:
            return


# -- hostile brokers


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"", "not a server-first"),
        (b"r=foreign,s=AAAA,i=4096", "foreign nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096", "foreign nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=2147483648", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=1048577", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4095", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=-1", "not a server-first"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=A,i=4096", "not a server-first"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=" + b"9" * 5000, "not a server-first"),
        (b"v=AAAA", "not a server-first"),
    ],
)
def test_a_client_refuses_a_hostile_challenge(challenge: bytes, reason: str) -> None:
    client = PasswordLogin(SHA256, "user", "pencil", lambda _: CLIENT_NONCE).machine()
    client.first()
    with pytest.raises(AuthenticationFailed, match=reason):
        client.next(challenge)


@pytest.mark.parametrize("final", [b"", b"v=AAAA", b"e=other-error", b"v="])
def test_a_client_refuses_a_broker_that_does_not_know_the_password(final: bytes) -> None:
    client = ScramMachine(SHA256, "user", lambda *_: b"salted", CLIENT_NONCE)
    client.first()
    client.next(b"r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=4096")
    with pytest.raises(AuthenticationFailed):
        client.next(final)
    assert not client.is_complete


def test_no_repr_has_a_secret() -> None:
    credential = credential_of(SHA256, "hunter2", b"salt", 4096)
    shown = f"{credential!r} {login('a', 'hunter2')!r} {login('a', 'hunter2').machine()!r}"
    assert "hunter2" not in shown
    assert credential.stored_key.hex() not in shown
