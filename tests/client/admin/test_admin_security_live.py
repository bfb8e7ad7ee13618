"""Access rules and passwords by Admin, against a broker that has an authorizer and a SASL listener."""

from collections.abc import Iterator

import pytest

import sparklog
from sparklog.client.admin.acls import CLUSTER_NAME, AclFilter, AclRule
from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.credentials import ScramDeletion, ScramUpsertion
from sparklog.client.failures import AuthenticationFailed
from sparklog.errors import BrokerError, ErrorCode
from sparklog.local_broker import EmbeddedBroker

ALICE_READS = AclRule("topic", "pay", "User:alice", "read", pattern_type="prefixed")
BOB_IS_DENIED = AclRule("topic", "payments", "User:bob", "all", "deny", host="10.0.0.0/8")
CAROL_ALTERS = AclRule("cluster", CLUSTER_NAME, "User:carol", "alter-configs")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
NODE = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "node"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One listener, on which the super user `node` has a password, and other users those they are given."""
    with sparklog.embedded(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:node",
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=(
            f'{PLAIN} required username="node" password="n" user_node="n";'
        ),
    ) as one:
        yield one


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers, sasl_password="n", **NODE) as admin:
        yield admin


def test_rules_are_added_selected_and_removed(admin: Admin) -> None:
    rules = [ALICE_READS, BOB_IS_DENIED, CAROL_ALTERS]
    admin.create_acls(rules)
    admin.create_acls([ALICE_READS])  # it exists
    assert admin.describe_acls() == sorted(rules)
    covering = AclFilter("topic", "payments", "match")
    assert admin.describe_acls(covering) == [ALICE_READS, BOB_IS_DENIED]
    exact = AclFilter("topic", "payments", "literal")
    assert admin.describe_acls(exact) == [BOB_IS_DENIED]
    assert admin.describe_acls(AclFilter(operation="read", permission="allow")) == [ALICE_READS]
    others = AclFilter(principal="User:carol")
    assert admin.delete_acls([exact, others]) == {exact: [BOB_IS_DENIED], others: [CAROL_ALTERS]}
    assert admin.delete_acls([AclFilter()]) == {AclFilter(): [ALICE_READS]}
    assert admin.describe_acls() == []


def test_a_refused_rule_is_told_and_the_others_are_added(admin: Admin) -> None:
    nowhere = AclRule("cluster", "nowhere", "User:alice", "alter")
    with pytest.raises(ItemsFailed, match="kafka-cluster") as failed:
        admin.create_acls([nowhere, ALICE_READS])
    assert list(failed.value.errors) == [nowhere]
    assert admin.delete_acls([AclFilter()])[AclFilter()] == [ALICE_READS]


def test_a_word_that_is_no_operation_is_refused_before_it_is_sent(admin: Admin) -> None:
    with pytest.raises(ValueError, match="'reed' is none of all, read, write"):
        admin.create_acls([AclRule("topic", "t", "User:a", "reed")])  # type: ignore[arg-type]


def test_without_an_authorizer_the_broker_says_so() -> None:
    with (
        sparklog.embedded() as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        pytest.raises(BrokerError) as refused,
    ):
        admin.describe_acls()
    assert refused.value.code is ErrorCode.SECURITY_DISABLED


def test_a_user_has_the_password_of_the_last_change(broker: EmbeddedBroker, admin: Admin) -> None:
    both = [ScramUpsertion("alice", "first"), ScramUpsertion("alice", "first", mechanism="SCRAM-SHA-256")]
    admin.alter_user_scram_credentials([*both, ScramUpsertion("bob", "b", iterations=4096)])
    assert admin.describe_user_scram_credentials() == {
        "alice": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
        "bob": {"SCRAM-SHA-512": 4096},
    }
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        log_in(broker, "alice", "first", mechanism)
    admin.alter_user_scram_credentials([ScramUpsertion("alice", "second")])
    log_in(broker, "alice", "second", "SCRAM-SHA-512")
    with pytest.raises(AuthenticationFailed):
        log_in(broker, "alice", "first", "SCRAM-SHA-512")
    admin.alter_user_scram_credentials(
        [ScramDeletion("alice"), ScramDeletion("alice", "SCRAM-SHA-256"), ScramDeletion("bob")]
    )
    assert admin.describe_user_scram_credentials() == {}


def log_in(broker: EmbeddedBroker, user: str, password: str, mechanism: str) -> None:
    with Admin(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
    ) as client:
        client.describe_cluster()


def test_refused_passwords_are_told_by_user_and_mechanism(admin: Admin) -> None:
    with pytest.raises(ItemsFailed) as failed:
        admin.alter_user_scram_credentials(
            [
                ScramUpsertion("dora", "d", iterations=100),
                ScramDeletion("nobody"),
                ScramUpsertion("dora", "d"),
            ]
        )
    assert {item: error.code for item, error in failed.value.errors.items()} == {
        ("dora", "SCRAM-SHA-512"): ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ("nobody", "SCRAM-SHA-512"): ErrorCode.RESOURCE_NOT_FOUND,
    }
    with pytest.raises(ItemsFailed) as unknown:
        admin.describe_user_scram_credentials(["dora", "nobody"])
    assert list(unknown.value.errors) == ["nobody"]
    assert unknown.value.results == {"dora": {"SCRAM-SHA-512": 8192}}
    admin.alter_user_scram_credentials([ScramDeletion("dora")])


def test_a_change_of_a_password_never_prints_it() -> None:
    assert (
        repr(ScramUpsertion("alice", "secret")) == "ScramUpsertion('alice', 'SCRAM-SHA-512', iterations=8192)"
    )
