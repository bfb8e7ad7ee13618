"""Nodes that authenticate with each other by SASL, and credentials that survive a failover."""

import pytest

from sparklog.client.sasl.login import PasswordLogin
from sparklog.client.sasl.machines import Machine, PlainMachine
from sparklog.client.sasl.scram_messages import salted_password
from sparklog.errors import SettingsError
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode
from tests.broker.clusters import Cluster

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'{MODULE} required username="node" password="n-secret" user_node="n-secret" user_alice="a-secret";'
SECURE = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener_name_controller_sasl_enabled_mechanisms": "PLAIN",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "sasl_mechanism_controller_protocol": "PLAIN",
    "listener_name_plaintext_plain_sasl_jaas_config": USERS,
    "listener_name_controller_plain_sasl_jaas_config": USERS,
    "delegation_token_secret_key": "t-secret",
}


def ask(
    cluster: Cluster, connection: SimulatedConnection, request: Message, version: int, reply: type
) -> Message:
    before = len(connection.replies)
    connection.send(request, version, reply)
    cluster.run_until(lambda: len(connection.replies) > before)
    return connection.replies[-1]


def log_in(
    cluster: Cluster, node: SimulatedNode, mechanism: str = "PLAIN", machine: Machine | None = None
) -> SimulatedConnection:
    connection = node.connect()
    machine = machine or PlainMachine("alice", "a-secret")
    ask(cluster, connection, SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse)
    response = machine.first()
    while response:
        told = ask(cluster, connection, SaslAuthenticateRequest(response), 2, SaslAuthenticateResponse)
        assert isinstance(told, SaslAuthenticateResponse)
        assert told.error_code == 0, told.error_message
        response = machine.next(told.auth_bytes)
    return connection


def create_topic(cluster: Cluster, connection: SimulatedConnection, name: str) -> int:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=3)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    told = ask(cluster, connection, request, 7, CreateTopicsResponse)
    assert isinstance(told, CreateTopicsResponse)
    return told.topics[0].error_code


def test_three_nodes_authenticate_replicate_and_survive_a_failover() -> None:
    cluster = Cluster(7, **SECURE).start()
    cluster.run_until(lambda: cluster.is_ready)
    leader = cluster.leader
    assert leader is not None
    follower, other = cluster.others(leader)
    connection = log_in(cluster, follower)
    assert create_topic(cluster, connection, "t") == 0
    salted = salted_password("sha256", "c-secret", b"salt", 4096)
    change = AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion("carol", 1, 4096, b"salt", salted)]
    )
    told = ask(cluster, connection, change, 0, AlterUserScramCredentialsResponse)
    assert isinstance(told, AlterUserScramCredentialsResponse)
    assert told.results[0].error_code == 0
    made = ask(cluster, connection, CreateDelegationTokenRequest(), 3, CreateDelegationTokenResponse)
    assert isinstance(made, CreateDelegationTokenResponse)
    assert (made.error_code, made.principal_name) == (0, "alice")
    leader.kill()
    cluster.run_until(lambda: cluster.leader not in (None, leader) and cluster.is_ready)
    for node in (follower, other):
        carol = PasswordLogin("SCRAM-SHA-256", "carol", "c-secret", lambda size: b"n" * size)
        assert create_topic(cluster, log_in(cluster, node, "SCRAM-SHA-256", carol.machine()), "t") == 36
        password = scram_password(made.hmac)
        token = PasswordLogin(
            "SCRAM-SHA-256", made.token_id, password, lambda size: b"n" * size, is_token=True
        )
        log_in(cluster, node, "SCRAM-SHA-256", token.machine())


def test_a_session_ends_on_every_node_when_its_token_is_expired() -> None:
    cluster = Cluster(7, **SECURE).start()
    cluster.run_until(lambda: cluster.is_ready)
    leader = cluster.leader
    assert leader is not None
    owner = log_in(cluster, cluster.others(leader)[0])
    made = ask(cluster, owner, CreateDelegationTokenRequest(), 3, CreateDelegationTokenResponse)
    assert isinstance(made, CreateDelegationTokenResponse)
    cluster.run(1_000)

    def by_token(node: SimulatedNode) -> SimulatedConnection:
        password = scram_password(made.hmac)
        login = PasswordLogin(
            "SCRAM-SHA-256", made.token_id, password, lambda size: b"n" * size, is_token=True
        )
        return log_in(cluster, node, "SCRAM-SHA-256", login.machine())

    sessions = [by_token(node) for node in cluster.nodes.values()]
    assert not any(one.is_closed for one in sessions)
    request = ExpireDelegationTokenRequest(made.hmac, -1)
    told = ask(cluster, owner, request, 2, ExpireDelegationTokenResponse)
    assert isinstance(told, ExpireDelegationTokenResponse)
    assert told.error_code == 0
    cluster.run(1_000)
    assert all(one.is_closed for one in sessions)
    assert not owner.is_closed


def scram_password(mac: bytes) -> str:
    from base64 import b64encode

    return b64encode(mac).decode()


def test_a_node_with_a_wrong_password_does_not_join() -> None:
    cluster = Cluster(8, count=4, **SECURE)
    cluster.run(1)
    wrong = USERS.replace('password="n-secret"', 'password="guess"')
    for number, node in cluster.nodes.items():
        if number == 4:
            given = dict(node._settings.given)
            given["listener.name.controller.plain.sasl.jaas.config"] = wrong
            node._settings = type(node._settings).of(given)
        node.start()
    cluster.run_until(
        lambda: all(one.running.is_ready for number, one in cluster.nodes.items() if number < 4)
    )
    cluster.run(5000)
    assert not cluster.nodes[4].running.is_ready
    assert "n-secret" not in "\n".join(line for node in cluster.nodes.values() for line in node.trace)


def test_sessions_between_nodes_authenticate_again() -> None:
    cluster = Cluster(9, **SECURE, connections_max_reauth_ms="3000").start()
    cluster.run_until(lambda: cluster.is_ready)
    cluster.run(20_000)
    assert cluster.is_ready
    trace = "\n".join(line for node in cluster.nodes.values() for line in node.trace)
    assert "the session has expired" not in trace
    assert "authentication by" not in trace


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"])
def test_the_quorum_cannot_rest_on_credentials_of_the_metadata_log(mechanism: str) -> None:
    given = {**SECURE, "sasl_mechanism_controller_protocol": mechanism}
    with pytest.raises(SettingsError, match=r"sasl\.mechanism\.controller\.protocol"):
        Cluster(1, **given).start()
