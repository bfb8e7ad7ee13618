"""`sparklog users` and `sparklog acls` on a broker that asks for passwords and has an authorizer."""

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparklog
from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import PROGRAM, Tell, Told

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
NODE = f'{PLAIN} required username="node" password="n" user_node="n";'


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:node",
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=NODE,
    ) as one:
        yield one


@pytest.fixture
def as_node(broker: EmbeddedBroker, tmp_path: Path) -> tuple[str, ...]:
    """The options by which a command authenticates as the super user."""
    return (*at(broker), "--command-config", str(properties(tmp_path, "PLAIN", "node", "n")))


@pytest.fixture
def ask(tell: Tell, as_node: tuple[str, ...]) -> Tell:
    """A command of the super user."""

    def ask(*arguments: str, stdin: str = "") -> Told:
        return tell(*arguments, *as_node, stdin=stdin)

    return ask


def at(broker: EmbeddedBroker) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap_servers


def properties(directory: Path, mechanism: str, user: str, password: str) -> Path:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    path = directory / f"{user}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required \\\n"
        f'  username="{user}" password="{password}";\n'
    )
    return path


def test_a_user_who_was_added_authenticates_and_one_who_was_removed_does_not(
    ask: Tell, tell: Tell, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first word\n")
    assert ask("users", "add", "alice", "--password-file", str(secret)) == Told(
        0, "", "added alice (SCRAM-SHA-512)\n"
    )
    assert ask("users", "list").rows == [["alice", "SCRAM-SHA-512", "8192"]]

    def describes_cluster(password: str) -> Told:
        config = properties(tmp_path, "SCRAM-SHA-512", "alice", password)
        return tell("cluster", "describe", *at(broker), "--command-config", str(config))

    assert describes_cluster("first word").code == 0
    assert ask("users", "password", "alice", "--password-file", "-", stdin="second").code == 0
    assert describes_cluster("second").code == 0
    refused = describes_cluster("first word")
    assert refused.code == 1
    assert "SASL" in refused.err
    assert "first word" not in refused.err
    assert ask("users", "remove", "alice").code == 0
    assert describes_cluster("second").code == 1
    assert ask("users", "list").rows == []


def test_each_mechanism_has_its_password(ask: Tell) -> None:
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512")
    assert ask("users", "add", "bob", *both, "--iterations", "4096", stdin="b\n").code == 0
    assert ask("users", "list", "--json").json == [
        {"user": "bob", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    ]
    assert ask("users", "password", "bob", stdin="c\n").code == 0
    assert [row[2] for row in ask("users", "list").rows] == ["8192", "8192"]
    assert ask("users", "remove", "bob", "--mechanism", "SCRAM-SHA-256").code == 0
    assert ask("users", "list").rows == [["bob", "SCRAM-SHA-512", "8192"]]
    missing = ask("users", "remove", "bob", "--mechanism", "SCRAM-SHA-256")
    assert (missing.code, missing.err) == (
        1,
        "Error: user 'bob' has no password for SCRAM-SHA-256, only for SCRAM-SHA-512\n",
    )
    assert ask("users", "remove", "bob").code == 0


def test_what_cannot_be_done_with_a_user_is_told_with_the_remedy(ask: Tell) -> None:
    assert ask("users", "add", "carol", stdin="c").code == 0
    assert "`sparklog users password` changes it" in ask("users", "add", "carol", stdin="d").err
    assert ask("users", "remove", "carol").code == 0
    for arguments in (("password", "carol"), ("remove", "carol")):
        told = ask("users", *arguments, stdin="c")
        assert told.code == 1
        assert "`sparklog users list` shows all" in told.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "has no password"),
        ("\n", "has no password"),
        ("one\ntwo\n", "one line"),
        ("x" * 5000, "at most 4096 bytes"),
    ],
)
def test_a_password_is_one_line_that_is_not_empty(ask: Tell, content: str, told: str) -> None:
    refused = ask("users", "add", "dora", stdin=content)
    assert refused.code == 1
    assert told in refused.err
    assert "two" not in refused.err
    assert ask("users", "list").rows == []


def test_on_a_terminal_the_password_is_asked_for_twice_and_never_shown(
    ask: Tell, as_node: tuple[str, ...]
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "users", "add", "erin", *as_node],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,  # getpass reads from the terminal of the session, which has none
    ) as child:
        os.close(theirs)
        printed = b""
        for wanted in (b"Password of erin: ", b"Repeat for confirmation: "):
            while wanted not in printed:
                assert select.select([ours], [], [], 20)[0], printed
                printed += os.read(ours, 4096)
            os.write(ours, b"hidden\n")
        assert child.wait(timeout=20) == 0
    os.close(ours)
    assert b"hidden" not in printed
    assert ask("users", "list").rows == [["erin", "SCRAM-SHA-512", "8192"]]
    assert ask("users", "remove", "erin").code == 0


def test_rules_are_added_listed_by_what_they_cover_and_removed(ask: Tell) -> None:
    assert ask("acls", "add", "alice", "read,describe", "topic:pay", "--prefixed") == Told(
        0, "", "added 2 rules\n"
    )
    assert ask("acls", "add", "User:*", "write", "topic:payments", "--deny", "--host", "10.0.0.0/8").code == 0
    assert ask("acls", "add", "Group:ops", "alter-configs", "cluster").code == 0
    denied = ["deny", "write", "topic:payments", "literal", "User:*", "10.0.0.0/8"]
    reads = ["allow", "read", "topic:pay", "prefixed", "User:alice", "*"]
    describes = ["allow", "describe", "topic:pay", "prefixed", "User:alice", "*"]
    assert ask("acls", "list", "--resource", "topic:payments").rows == [describes, reads, denied]
    assert ask("acls", "list", "--resource", "topic:payments", "--pattern", "literal").rows == [denied]
    assert ask("acls", "list", "--principal", "Group:ops", "--json").json == [
        {
            "resource_type": "cluster",
            "resource_name": "kafka-cluster",
            "principal": "Group:ops",
            "operation": "alter-configs",
            "permission": "allow",
            "host": "*",
            "pattern_type": "literal",
        }
    ]
    chosen = (
        "--principal",
        "alice",
        "--operation",
        "read",
        "--resource",
        "topic:pay",
        "--pattern",
        "prefixed",
    )
    assert ask("acls", "remove", *chosen, "--validate-only").rows == [reads]
    assert ask("acls", "remove", *chosen).rows == [reads]
    assert len(ask("acls", "remove", "--all").rows) == 3
    assert ask("acls", "list").rows == []


def test_removing_every_rule_must_be_said(ask: Tell) -> None:
    for arguments in ((), ("--all", "--principal", "alice")):
        told = ask("acls", "remove", *arguments)
        assert told.code == 2
        assert "or every rule with --all alone" in told.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("alice", "reed", "topic:t"), "'reed' is no operation; there are all, read,"),
        (("alice", "read", "t"), "'t' is no resource; write topic:NAME"),
        (("alice", "read", "topic:"), "'topic:' is no resource"),
    ],
)
def test_a_rule_that_cannot_be_is_told(ask: Tell, arguments: tuple[str, ...], told: str) -> None:
    refused = ask("acls", "add", *arguments)
    assert refused.code == 2
    assert told in refused.err.replace("\n", " ")


def test_a_rule_that_the_broker_refuses_is_told_in_its_words(ask: Tell) -> None:
    refused = ask("acls", "add", "alice", "alter", "cluster:other")
    assert refused.code == 1
    assert "kafka-cluster" in refused.err


def test_the_commands_that_an_explanation_names_allow_what_was_denied(ask: Tell) -> None:
    question = ("acls", "explain", "bob", "read", "topic:payments")
    assert ask(*question).out == (
        "denied: no rule covers the resource, and allow.everyone.if.no.acl.found is false\n"
        "to add: sparklog acls add User:bob read topic:payments\n"
    )
    ask("acls", "add", "User:*", "all", "topic:pay", "--prefixed", "--deny")
    told = ask(*question)
    assert told.out.splitlines()[:2] == [
        "denied: a rule denies it",
        "rule: deny all on topic:prefixed:pay for User:* from host *",
    ]
    assert [row["operation"] for row in ask(*question, "--json").json["in_the_way"]] == ["all"]
    for line in told.out.splitlines()[2:]:
        words = line.partition(": sparklog ")[2].replace("'", "").split()
        assert ask(*words).code == 0, line
    assert ask(*question).out == (
        "allowed: a rule allows it\nrule: allow read on topic:literal:payments for User:bob from host *\n"
    )
    assert ask("acls", "remove", "--all").code == 0


def test_an_explanation_knows_super_users_groups_and_hosts(ask: Tell) -> None:
    assert ask("acls", "explain", "node", "read", "topic:t").out == "allowed: super.users has it\n"
    ask("acls", "add", "Group:ops", "write", "topic:t", "--host", "10.0.0.0/8")
    question = ("acls", "explain", "bob", "describe", "topic:t", "--group", "ops")
    assert json.loads(ask(*question, "--host", "10.1.2.3", "--json").out)["reason"] == "ALLOWED_BY_RULE"
    assert ask(*question, "--host", "11.1.2.3").out.startswith(
        "denied: rules cover the resource, and none of them allows it\n"
    )
    assert ask("acls", "remove", "--all").code == 0


def test_an_explanation_says_what_it_could_not_read(
    ask: Tell, tell: Tell, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    ask("users", "add", "frank", stdin="f")
    ask("acls", "add", "frank", "describe", "cluster")
    config = properties(tmp_path, "SCRAM-SHA-512", "frank", "f")
    told = tell("acls", "explain", "node", "read", "topic:t", *at(broker), "--command-config", str(config))
    assert told.out.startswith("denied: no rule covers the resource")
    assert "without describe-configs on cluster, super.users" in told.err
    assert ask("acls", "remove", "--all").code == 0
    assert ask("users", "remove", "frank").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("add", "alice", "read", "topic:t"),
        ("remove", "--all"),
        ("explain", "alice", "read", "topic:t"),
    ],
)
def test_a_cluster_without_an_authorizer_is_told_which_settings_make_one(
    tell: Tell, arguments: tuple[str, ...]
) -> None:
    told = tell("acls", *arguments)
    assert told.code == 1
    assert "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer" in told.err
