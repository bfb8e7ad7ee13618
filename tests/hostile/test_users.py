"""Clients that pretend to be others: forged tokens, a second user in one session, and the groups,
transactions and topics of others.
"""

import itertools
import json
import select
import time
from typing import Any

import pytest

from sparklog.client.sasl.machines import OAuthMachine
from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from sparklog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from tests.broker.world import fetch, fetched, produce, produced
from tests.hostile.conftest import BEFORE, Client, Door, Target, doors
from tests.hostile.test_batches import a_topic, batch
from tests.security.test_oauth import CLAIMS, OTHER_KEY, PUBLIC_PEM, signed
from tests.security.test_oauth import _unsigned as unsigned

AUTHENTICATED = doors(Door.AFTER, Door.TLS_AFTER)
SHA_512, LITERAL, PREFIXED, TOPIC, ALL, ALLOW = 2, 3, 4, 2, 2, 3
ITERATIONS = {1, 4095, 16_385, 2**31 - 1, -1}
REAUTHENTICATION_S = 1.1
"""A session authenticates again at most once a second (KIP-368)."""
_names = itertools.count(1)


# -- one session, one user


@AUTHENTICATED
@pytest.mark.parametrize(("user", "password"), [("mallory", "m-secret"), ("alice", "wrong")])
def test_a_second_user_in_a_session_is_refused_and_closes_it(
    target: Target, door: Door, user: str, password: str
) -> None:
    with target.client(door) as client:
        select.select([], [], [], REAUTHENTICATION_S)
        client.begin()
        told = client.respond(f"\0{user}\0{password}".encode())
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


@BEFORE
@pytest.mark.parametrize("user", ["empty", "alice", "nobody", "al\u202eice", "\u2066alice\u2069", "alice\0"])
def test_an_empty_password_and_names_that_look_alike_are_refused(
    target: Target, door: Door, user: str
) -> None:
    with target.client(door) as client:
        client.begin()
        told = client.respond(f"\0{user}\0".encode())
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
    assert "\u202e" not in target.log()


def test_iterations_beyond_kafkas_bounds_are_no_credential(target: Target) -> None:
    with target.client(Door.PLAIN) as client:
        for iterations in ITERATIONS:
            upsertion = ScramCredentialUpsertion("eve", SHA_512, iterations, b"salt", bytes(64))
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            told = client.ask(request, 0, AlterUserScramCredentialsResponse)
            assert isinstance(told, AlterUserScramCredentialsResponse)
            assert told.results[0].error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL, iterations


# -- tokens


def now_claims(**more: object) -> dict[str, Any]:
    now_s = int(time.time())
    return {**CLAIMS, "iat": now_s - 10, "exp": now_s + 300, **more}


def present(client: Client, token: str) -> bytes:
    """Present a token; what the broker challenges with."""
    client.begin("OAUTHBEARER")
    told = client.respond(OAuthMachine(token).first())
    assert told.error_code == 0
    return told.auth_bytes


FORGED = {
    "unsigned": lambda: unsigned({"alg": "none"}, now_claims()),
    "unsigned with a key": lambda: unsigned({"alg": "none", "kid": "one"}, now_claims()),
    "unsigned in capitals": lambda: unsigned({"alg": "NONE", "kid": "one"}, now_claims()),
    "of another key": lambda: signed(now_claims(), OTHER_KEY),
    "of another algorithm": lambda: signed(now_claims(), PUBLIC_PEM.hex(), "HS256"),
    "of an unknown algorithm": lambda: unsigned({"alg": "XX999", "kid": "one"}, now_claims()) + "AAAA",
    "not yet valid": lambda: signed(now_claims(nbf=int(time.time()) + 3600)),
    "expired": lambda: signed(now_claims(exp=int(time.time()) - 3600)),
    "for another audience": lambda: signed(now_claims(aud="other")),
    "of another issuer": lambda: signed(now_claims(iss="https://other")),
    "without an end": lambda: signed({k: v for k, v in now_claims().items() if k != "exp"}),
}


@BEFORE
def test_a_token_of_the_provider_passes(target: Target, door: Door) -> None:
    with target.client(door) as client:
        assert present(client, signed(now_claims())) == b""


@BEFORE
@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_token_is_refused_and_closes_the_connection(target: Target, door: Door, kind: str) -> None:
    with target.client(door) as client:
        assert json.loads(present(client, FORGED[kind]()))["status"] == "invalid_token"
        told = client.respond(b"\x01")
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


@BEFORE
def test_a_token_of_300_kilobytes_is_refused_before_it_is_read(target: Target, door: Door) -> None:
    with target.client(door) as client:
        client.begin("OAUTHBEARER")
        told = client.respond(OAuthMachine(signed(now_claims(padding="x" * 300_000))).first())
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


@BEFORE
def test_a_token_of_a_megabyte_closes_the_connection(target: Target, door: Door) -> None:
    from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest

    with target.client(door) as client:
        client.begin("OAUTHBEARER")
        first = OAuthMachine(signed(now_claims(padding="x" * 1_000_000))).first()
        client.request(SaslAuthenticateRequest(first), 2)
        assert client.is_closed()


# -- what belongs to others


def allow(admin: Client, name: str, pattern: int, host: str = "*") -> int:
    creation = AclCreation(TOPIC, name, pattern, "User:mallory", host, ALL, ALLOW)
    told = admin.ask(CreateAclsRequest([creation]), 3, CreateAclsResponse)
    assert isinstance(told, CreateAclsResponse)
    return told.results[0].error_code


@AUTHENTICATED
def test_names_in_rules_are_no_regular_expressions(target: Target, door: Door) -> None:
    with target.client(Door.PLAIN) as admin, target.client(door, "mallory") as mallory:
        topic = a_topic(admin)
        for name in (".*", "hostile-.*", "hostile-[0-9]+", "^hostile", "hostile-*", "hostile-?", "%"):
            for pattern in (LITERAL, PREFIXED):
                assert allow(admin, name, pattern) == 0
        told = mallory.ask(produce(topic, bytes(batch())), 9, ProduceResponse)
        assert produced(told)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        code, _ = fetched(mallory.ask(fetch(topic, 0, max_wait_ms=0), 12, FetchResponse))
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert allow(admin, topic, LITERAL) == 0
        assert produced(mallory.ask(produce(topic, bytes(batch())), 9, ProduceResponse)) == (0, 0)


def code_of(told: Message) -> int:
    code = getattr(told, "error_code", None)
    return told.coordinators[0].error_code if code is None else code  # type: ignore[attr-defined]


def joining(group: str, member: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    return JoinGroupRequest(group, 10_000, 10_000, member, None, "consumer", protocols)


@AUTHENTICATED
def test_groups_and_transactions_of_others_are_out_of_reach(target: Target, door: Door) -> None:
    group = transaction = f"of-alice-{next(_names)}"
    no_group, no_transaction = (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    with target.client(door) as alice, target.client(door, "mallory") as mallory:
        member, generation = joined(alice, group)
        producer = begun(alice, transaction)
        asked: list[tuple[Message, int, type[Message], int]] = [
            (FindCoordinatorRequest(key=group, key_type=0), 3, FindCoordinatorResponse, no_group),
            (FindCoordinatorRequest(key=transaction, key_type=1), 3, FindCoordinatorResponse, no_transaction),
            (joining(group, member), 6, JoinGroupResponse, no_group),
            (HeartbeatRequest(group, generation, member), 3, HeartbeatResponse, no_group),
            (LeaveGroupRequest(group, member), 2, LeaveGroupResponse, no_group),
            (InitProducerIdRequest(transaction, 60_000), 4, InitProducerIdResponse, no_transaction),
            (EndTxnRequest(transaction, *producer, committed=True), 3, EndTxnResponse, no_transaction),
        ]
        assert [code_of(mallory.ask(*one[:3])) for one in asked] == [one[3] for one in asked]
        # With the rights, but as another member and another producer.
        forged: list[tuple[Message, int, type[Message], int]] = [
            (
                HeartbeatRequest(group, generation, "forged"),
                3,
                HeartbeatResponse,
                ErrorCode.UNKNOWN_MEMBER_ID,
            ),
            (HeartbeatRequest(group, 99, member), 3, HeartbeatResponse, ErrorCode.ILLEGAL_GENERATION),
            (LeaveGroupRequest(group, "forged"), 2, LeaveGroupResponse, ErrorCode.UNKNOWN_MEMBER_ID),
            (
                EndTxnRequest(transaction, producer[0] + 1, producer[1], committed=True),
                3,
                EndTxnResponse,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ),
            (
                EndTxnRequest(transaction, producer[0], producer[1] + 1, committed=True),
                3,
                EndTxnResponse,
                ErrorCode.PRODUCER_FENCED,
            ),
        ]
        assert [code_of(alice.ask(*one[:3])) for one in forged] == [one[3] for one in forged]
        assert code_of(alice.ask(HeartbeatRequest(group, generation, member), 3, HeartbeatResponse)) == 0


def joined(client: Client, group: str) -> tuple[str, int]:
    """The member id and the generation of a new group of one."""
    client.ask(FindCoordinatorRequest(key=group, key_type=0), 3, FindCoordinatorResponse)
    told = client.ask(joining(group, ""), 3, JoinGroupResponse)
    assert isinstance(told, JoinGroupResponse)
    assert told.error_code == 0
    from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

    synced = client.ask(SyncGroupRequest(group, told.generation_id, told.member_id), 3, SyncGroupResponse)
    assert code_of(synced) == 0
    return told.member_id, told.generation_id


def begun(client: Client, transaction: str) -> tuple[int, int]:
    """The producer id and epoch of a transactional id."""
    client.ask(FindCoordinatorRequest(key=transaction, key_type=1), 3, FindCoordinatorResponse)
    told = client.ask(InitProducerIdRequest(transaction, 60_000), 4, InitProducerIdResponse)
    assert isinstance(told, InitProducerIdResponse)
    assert told.error_code == 0
    return told.producer_id, told.producer_epoch
