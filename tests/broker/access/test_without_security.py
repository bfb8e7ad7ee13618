"""A security request is answered as a Kafka without an authorizer and without SASL answers it."""

import base64
import hashlib
import hmac

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from sparklog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from sparklog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from sparklog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from sparklog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.controller.credentials import SALT_BYTES_MAX, alter_user_scram_credentials
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import UserScramCredentialRecord
from tests.broker.administering import Admin
from tests.broker.world import World

SHA_256, SHA_512 = 1, 2
OF_SECURITY = {17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51}
ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


def test_all_of_it_is_advertised(admin: Admin) -> None:
    told = admin.ask(ApiVersionsRequest("a", "1"), 4, ApiVersionsResponse)
    assert {api.api_key for api in told.api_keys} >= OF_SECURITY


# -- access rules


@pytest.mark.parametrize("version", [1, 2, 3])
def test_access_rules_are_refused_since_nothing_enforces_them(admin: Admin, version: int) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    asked = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    described = admin.ask(asked, version, DescribeAclsResponse)
    assert (described.error_code, described.error_message) == (
        disabled,
        "No Authorizer is configured on the broker",
    )
    rules = [AclCreation(TOPIC, name, LITERAL, "User:a", "*", READ, ALLOW) for name in ("t", "u")]
    created = admin.ask(CreateAclsRequest(rules), version, CreateAclsResponse)
    assert [(one.error_code, one.error_message) for one in created.results] == [
        (disabled, "No Authorizer is configured.")
    ] * 2
    filters = [DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)]
    deleted = admin.ask(DeleteAclsRequest(filters), version, DeleteAclsResponse)
    assert [(one.error_code, one.error_message) for one in deleted.filter_results] == [
        (disabled, "No Authorizer is configured.")
    ]


@pytest.mark.parametrize(
    "request_",
    [
        DescribeAclsRequest(0, None, ANY, None, None, ANY, ANY),
        CreateAclsRequest([AclCreation(TOPIC, "t", LITERAL, "User:a", "*", 0, ALLOW)]),
        DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY, None, None, ANY, 0)]),
    ],
)
def test_an_access_rule_with_an_unknown_element_closes_the_session(
    world: World, admin: Admin, request_: Message
) -> None:
    admin.connection.send(request_, 3, DescribeAclsResponse)
    world.settle()
    assert admin.connection.replies == []
    assert admin.connection.is_closed


# -- SASL and tokens


def test_a_plain_listener_takes_no_sasl(admin: Admin) -> None:
    for version in (0, 1):
        shaken = admin.ask(SaslHandshakeRequest("PLAIN"), version, SaslHandshakeResponse)
        assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in (0, 1, 2):
        told = admin.ask(SaslAuthenticateRequest(b"x"), version, SaslAuthenticateResponse)
        assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert told.error_message == "SaslAuthenticate request received after successful authentication"


def test_a_session_that_nothing_authenticated_gets_no_tokens(admin: Admin) -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for owner, told_owner in ((None, "ANONYMOUS"), ("me", "me")):
        asked = CreateDelegationTokenRequest("User", owner)
        made = admin.ask(asked, 3, CreateDelegationTokenResponse)
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
            refused,
            told_owner,
            "ANONYMOUS",
        )
        assert (made.issue_timestamp_ms, made.token_id, made.hmac) == (-1, "", b"")
    renewed = admin.ask(RenewDelegationTokenRequest(b"x", 1), 2, RenewDelegationTokenResponse)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (refused, -1)
    expired = admin.ask(ExpireDelegationTokenRequest(b"x", 1), 2, ExpireDelegationTokenResponse)
    assert (expired.error_code, expired.expiry_timestamp_ms) == (refused, -1)
    described = admin.ask(DescribeDelegationTokenRequest(owners=None), 3, DescribeDelegationTokenResponse)
    assert (described.error_code, described.tokens) == (refused, [])


# -- SCRAM


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, b"p" * 32)


def altered(
    admin: Admin, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    """The code and message of each user."""
    request = AlterUserScramCredentialsRequest(
        [one for one in changes if isinstance(one, ScramCredentialDeletion)],
        [one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    told = admin.ask(request, 0, AlterUserScramCredentialsResponse)
    return {one.user: (one.error_code, one.error_message) for one in told.results}


def described(admin: Admin, *users: str) -> dict[str, list[tuple[int, int]]]:
    """Mechanism and iterations of each user."""
    request = DescribeUserScramCredentialsRequest([UserName(name) for name in users] or None)
    told = admin.ask(request, 0, DescribeUserScramCredentialsResponse)
    return {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos] for one in told.results
    }


def test_credentials_are_kept_across_a_restart_and_removed(world: World) -> None:
    admin = Admin(world)
    done = (ErrorCode.NONE, None)
    assert altered(admin, upsertion("a"), upsertion("b", SHA_512, 5000)) == {"a": done, "b": done}
    assert altered(admin, upsertion("a", SHA_512)) == {"a": done}
    kept = {"a": [(SHA_256, 4096), (SHA_512, 4096)], "b": [(SHA_512, 5000)]}
    assert described(admin) == kept
    world.node.stop()
    world.node.start()
    world.settle()
    admin = Admin(world)
    assert described(admin, "a", "b") == kept
    assert altered(admin, ScramCredentialDeletion("a", SHA_256), ScramCredentialDeletion("b", SHA_512)) == {
        "a": done,
        "b": done,
    }
    assert described(admin) == {"a": [(SHA_512, 4096)]}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("a", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("a", SHA_256, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", SHA_512, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            upsertion("a", salt=bytes(SALT_BYTES_MAX + 1)),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salt has 1025 bytes; at most 1024 are kept",
        ),
        (
            ScramCredentialUpsertion("a", SHA_256, 4096, b"salt", b""),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salted password must not be empty",
        ),
        (ScramCredentialDeletion("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            ScramCredentialDeletion("a", SHA_256),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_a_credential_that_is_refused_leaves_those_of_others(
    admin: Admin, change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode, message: str
) -> None:
    assert altered(admin, change, upsertion("other")) == {
        change.name: (code, message),
        "other": (ErrorCode.NONE, None),
    }
    assert described(admin) == {"other": [(SHA_256, 4096)]}


def test_a_user_that_is_named_twice_keeps_what_it_has(admin: Admin) -> None:
    altered(admin, upsertion("a"))
    twice = {
        "a": (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    }
    assert altered(admin, upsertion("a", SHA_512), upsertion("a", SHA_256, 5000)) == twice
    assert altered(admin, ScramCredentialDeletion("a", SHA_256), upsertion("a", SHA_512)) == twice
    assert (
        altered(
            admin,
            ScramCredentialDeletion("a", SHA_256),
            ScramCredentialDeletion("a", SHA_256),
            upsertion("a"),
        )
        == twice
    )
    assert described(admin) == {"a": [(SHA_256, 4096)]}


def test_what_is_kept_verifies_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    change = ScramCredentialUpsertion("user", SHA_256, 4096, salt, salted)
    request = AlterUserScramCredentialsRequest([], [change])
    records = alter_user_scram_credentials(MetadataImage(), request, bytes).records
    (record,) = [one for one in records if isinstance(one, UserScramCredentialRecord)]
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(record.stored_key, exchange, "sha256")
    assert (
        hashlib.sha256(bytes(a ^ b for a, b in zip(proof, signature, strict=True))).digest()
        == record.stored_key
    )
    assert hmac.digest(record.server_key, exchange, "sha256") == base64.b64decode(
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


def test_who_may_not_alter_the_cluster_alters_no_credentials() -> None:
    world = World(
        1,
        allow=lambda _, operation, resource, __: (
            resource is not Resource.CLUSTER or operation is Operation.CREATE
        ),
    )
    world.node.start()
    world.settle()
    admin = Admin(world)
    denied = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    assert altered(admin, upsertion("a")) == {"a": denied}
    told = admin.ask(DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 3, DescribeAclsResponse)
    assert (told.error_code, told.error_message) == denied
