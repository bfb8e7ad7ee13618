"""OAUTHBEARER on the broker: tokens of an identity provider, and forged ones."""

import json
import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.sasl.machines import OAuthMachine
from sparklog.model import Instant, Micros, Millis
from sparklog_server.security.oauth import (
    RESPONSE_BYTES_MAX,
    KeyReads,
    Keys,
    KeysRead,
    OAuthProvider,
    OAuthRules,
    OAuthServer,
    parse_keys,
    parse_response,
)
from sparklog_server.security.sasl import (
    Authenticated,
    Challenge,
    SaslRefused,
    SaslUnavailable,
    Waiting,
    Working,
)

NOW_S = 1_800_000_000
NOW = Instant(Micros(0), Millis(NOW_S * 1000))
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = rsa.generate_private_key(65537, 2048)
CLAIMS = {"sub": "alice", "iss": "https://idp", "aud": "kafka", "exp": NOW_S + 300, "iat": NOW_S - 10}
RULES = OAuthRules(jwks_url="https://idp/keys", issuer="https://idp", audiences=("kafka", "other"))


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


JWKS = json.dumps({"keys": [jwk(RSA_KEY, "one", use="sig"), jwk(EC_KEY, "two")]}).encode()


def signed(
    claims: Mapping[str, object] | None = None, key: Any = RSA_KEY, algorithm: str = "RS256", kid: str = "one"
) -> str:
    return jwt.encode(dict(CLAIMS if claims is None else claims), key, algorithm, headers={"kid": kid})


class Background:
    """The background jobs that have not run."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Keys | str], KeysRead]] = []

    def run(self, job: Callable[[], Keys | str], then: KeysRead) -> None:
        self.jobs.append((job, then))

    def end_first(self, now: Instant) -> None:
        job, then = self.jobs.pop(0)
        then(job(), now)


class Idp:
    """The document of keys, how often it was read, and the trace of the broker."""

    def __init__(self, rules: OAuthRules = RULES, background: Background | None = None) -> None:
        self.document: bytes | None = JWKS
        self.reads = 0
        self.trace: list[str] = []
        self.background = background or Background()
        self.provider = OAuthProvider(
            rules,
            KeyReads(self.read, self.background.run),
            lambda event, **fields: self.trace.append(f"{event} {fields}"),
        )

    def read(self, url: str) -> bytes:
        assert url == "https://idp/keys"
        self.reads += 1
        if self.document is None:
            raise OSError("no route to host")
        return self.document

    def log_in(self, token: str, now: Instant = NOW) -> Authenticated:
        """Authenticate, where each read of keys ends at once. Raises the refusal that the client gets."""
        machine, client = OAuthServer(self.provider), OAuthMachine(token)
        step: object = machine.respond(client.first(), now)
        if isinstance(step, Waiting):
            woken: list[Instant] = []
            step.wait(woken.append)
            self.background.end_first(now)
            assert woken == [now]
            step = step.then()
        while self.background.jobs:
            self.background.end_first(now)
        assert isinstance(step, Working)
        told = step.then(step.job(), now)
        if isinstance(told, Challenge):
            assert json.loads(told.data) == {"status": "invalid_token"}
            machine.respond(client.next(told.data), now)
        assert isinstance(told, Authenticated)
        return told


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(key=EC_KEY, algorithm="ES256", kid="two"),
        signed(algorithm="PS512"),
        signed({**CLAIMS, "aud": ["x", "kafka"]}),
        signed({**CLAIMS, "scope": "a b", "nbf": NOW_S + 20, "iat": NOW_S + 20}),
        signed({**CLAIMS, "exp": NOW_S - 29}),
    ],
)
def test_a_token_of_the_provider_passes(token: str) -> None:
    told = Idp().log_in(token)
    assert told.user == "alice"
    assert told.expires_ms in ((NOW_S + 300) * 1000, (NOW_S - 29) * 1000)


def _unsigned(header: Mapping[str, object], claims: Mapping[str, object] = CLAIMS) -> str:
    def part(one: Mapping[str, object]) -> str:
        return urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=")

    return f"{part(header)}.{part(claims)}."


PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _confused() -> str:
    """A token with an HMAC by the public key: the wrong algorithm for that key."""
    import hashlib
    import hmac

    unsigned = _unsigned({"alg": "HS256", "kid": "one"}).rstrip(".")
    mac = hmac.new(PUBLIC_PEM, unsigned.encode(), hashlib.sha256).digest()
    return f"{unsigned}.{urlsafe_b64encode(mac).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "token",
    [
        _unsigned({"alg": "none"}),
        _unsigned({"alg": "none", "kid": "one"}),
        _unsigned({"alg": "None"}) + "AAAA",
        _unsigned({"alg": "RS256", "kid": "one"}),
        _confused(),
        signed(key=OTHER_KEY),
        signed(kid="two"),
        signed(kid="unknown"),
        signed(key=EC_KEY, algorithm="ES256", kid="one"),
        signed()[:-4] + "AAAA",
        "a.b.c",
        "abc",
        "....",
        "x" * 200_000,
        signed({**CLAIMS, "exp": NOW_S - 31}),
        signed({key: value for key, value in CLAIMS.items() if key != "exp"}),
        signed({key: value for key, value in CLAIMS.items() if key != "iat"}),
        signed({key: value for key, value in CLAIMS.items() if key != "sub"}),
        signed({**CLAIMS, "nbf": NOW_S + 31}),
        signed({**CLAIMS, "aud": "elsewhere"}),
        signed({key: value for key, value in CLAIMS.items() if key != "aud"}),
        signed({key: value for key, value in CLAIMS.items() if key != "iss"} | {"iss": "https://evil"}),
        signed({**CLAIMS, "exp": 1e300}),
        signed({**CLAIMS, "sub": " "}),
        signed({**CLAIMS, "scope": {"a": 1}}),
    ],
)
def test_a_forged_or_unfit_token_is_refused(token: str) -> None:
    idp = Idp()
    with pytest.raises(SaslRefused, match="the token is not valid"):
        idp.log_in(token)
    assert len(idp.trace) == 1
    assert token[:30] not in idp.trace[0]


def test_a_subject_that_is_no_text_is_refused() -> None:
    import jwt.api_jws

    body = json.dumps({**CLAIMS, "sub": 7}).encode()
    token = jwt.api_jws.PyJWS().encode(body, RSA_KEY, "RS256", {"kid": "one"})
    with pytest.raises(SaslRefused):
        Idp().log_in(token)


def test_a_token_of_a_megabyte_is_refused_before_it_is_read() -> None:
    idp = Idp()
    with pytest.raises(SaslRefused, match="more than"):
        a_step(idp, "x" * (1 << 20))
    assert idp.background.jobs == []


@pytest.mark.parametrize(
    "response",
    [
        b"n,a=" + b"x" * 500_000 + b",\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 120_000 + b"\x01",
        b"n,a=" + b"=2C" * 150_000,
        b"n,a=" + b"x" * 250_000 + b",\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 60_000 + b"\x01",
        b"n,a=" + b"=2C" * 80_000,
    ],
)
def test_a_response_of_up_to_half_a_megabyte_takes_bounded_memory(response: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SaslRefused):
            parse_response(response)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(response) + (1 << 20)
    finally:
        tracemalloc.stop()


def test_other_claims_can_name_the_user_and_the_groups() -> None:
    rules = OAuthRules(jwks_url="https://idp/keys", subject_claim="upn", groups_claim="roles")
    told = Idp(rules).log_in(signed({**CLAIMS, "upn": "a@b", "roles": ["ops", 7, ""]}))
    assert (told.user, told.groups) == ("a@b", ("Group:ops",))


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 100_000,
    ],
)
def test_bytes_that_are_no_response_are_refused(response: bytes) -> None:
    with pytest.raises(SaslRefused):
        parse_response(response)


def test_a_response_is_read_up_to_its_bound() -> None:
    token = "t" * (RESPONSE_BYTES_MAX - len(b"n,,\x01auth=Bearer \x01\x01"))
    assert parse_response(f"n,,\x01auth=Bearer {token}\x01\x01".encode()) == (token, "")
    with pytest.raises(SaslRefused, match=f"has more than {RESPONSE_BYTES_MAX} bytes"):
        parse_response(f"n,,\x01auth=Bearer {token}t\x01\x01".encode())


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_refused(response: bytes) -> None:
    with pytest.raises(SaslRefused):
        parse_response(response)


def test_extensions_and_the_authorization_id_are_read() -> None:
    assert parse_response(b"n,a=alice,\x01auth=bearer  tok.en\x01ext=v\x01\x01") == ("tok.en", "alice")


# -- keys


def at(ms: int) -> Instant:
    return Instant(Micros(ms * 1000), Millis(NOW_S * 1000))


def test_keys_are_read_once_and_again_when_they_are_old() -> None:
    idp = Idp()
    for ms in (0, 1000, 3_599_999):
        idp.log_in(signed(), at(ms))
    assert idp.reads == 1
    idp.log_in(signed(), at(3_600_000))
    assert idp.reads == 2


def test_a_new_key_is_found_but_unknown_keys_do_not_cause_a_read_each() -> None:
    idp = Idp()
    idp.log_in(signed())
    idp.document = json.dumps({"keys": [jwk(OTHER_KEY, "new")]}).encode()
    for ms in (1, 2, 3):
        with pytest.raises(SaslRefused):
            idp.log_in(signed(key=OTHER_KEY, kid="new"), at(ms))
    assert idp.reads == 1
    assert idp.log_in(signed(key=OTHER_KEY, kid="new"), at(10_001)).user == "alice"
    assert idp.reads == 2


def test_without_keys_the_token_is_not_refused_but_unavailable() -> None:
    idp = Idp()
    idp.document = None
    with pytest.raises(SaslUnavailable):
        idp.log_in(signed())
    with pytest.raises(SaslUnavailable):
        idp.log_in(signed(), at(99))
    assert idp.reads == 1
    idp.document = JWKS
    assert idp.log_in(signed(), at(100)).user == "alice"


def test_old_keys_serve_while_the_provider_cannot_be_reached() -> None:
    idp = Idp()
    idp.log_in(signed())
    idp.document = None
    assert idp.log_in(signed(), at(3_600_000)).user == "alice"
    assert idp.log_in(signed(), at(3_600_001)).user == "alice"
    assert idp.reads == 2


def a_step(idp: Idp, token: str, now: Instant = NOW) -> Working | Waiting:
    return OAuthServer(idp.provider).respond(OAuthMachine(token).first(), now)


def test_while_a_provider_hangs_one_background_job_reads_and_no_job_of_a_request_waits() -> None:
    idp = Idp()
    woken: list[Instant] = []
    steps = [a_step(idp, signed(), at(ms)) for ms in (0, 1, 60_000)]
    for step in steps:
        assert isinstance(step, Waiting)
        step.wait(woken.append)
    assert (len(idp.background.jobs), idp.reads, woken) == (1, 0, [])
    idp.background.end_first(at(61_000))
    assert (len(woken), idp.reads) == (3, 1)
    assert all(isinstance(step, Waiting) and step.then().job() for step in steps)


def test_while_old_keys_are_read_again_they_serve_at_once() -> None:
    idp = Idp()
    idp.log_in(signed())
    for ms in (3_600_000, 3_600_001, 3_700_000):
        step = a_step(idp, signed(), at(ms))
        assert isinstance(step, Working)
        assert isinstance(step.then(step.job(), at(ms)), Authenticated)
    assert (len(idp.background.jobs), idp.reads) == (1, 1)


def test_conversations_that_wait_for_keys_are_bounded_and_fail_with_the_read() -> None:
    idp = Idp()
    idp.document = None
    steps = []
    for _ in range(100):
        step = a_step(idp, signed())
        assert isinstance(step, Waiting)
        step.wait(lambda _now: None)
        steps.append(step)
    with pytest.raises(SaslUnavailable, match="too many"):
        a_step(idp, signed())
    idp.background.end_first(at(10))
    for step in steps:
        with pytest.raises(SaslUnavailable, match="have not been read"):
            step.then()
    assert isinstance(a_step(idp, signed(), at(110)), Waiting)


def test_the_keys_of_two_providers_are_read_one_after_the_other() -> None:
    background = Background()
    reads = KeyReads(lambda url: {"one": b"no keys", "two": JWKS}[url], background.run)
    told: list[object] = []
    for url in ("one", "two"):
        reads.begin(url, lambda result, _now: told.append(result))
    assert len(background.jobs) == 1
    background.end_first(NOW)
    assert (len(background.jobs), told) == (1, ["ValueError: the document is not a JSON Web Key Set"])
    background.end_first(NOW)
    assert (len(background.jobs), len(told)) == (0, 2)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 7}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "one"}]}',
        b'{"keys": [{"kty": "RSA", "n": "x"}, 7, {"kty": "EC", "crv": "P-256"}]}',
        json.dumps({"keys": [jwk(RSA_KEY, "one", use="enc")]}).encode(),
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_document_without_public_keys_is_an_error(document: bytes) -> None:
    with pytest.raises(ValueError, match="JSON Web Key Set"):
        parse_keys(document)
