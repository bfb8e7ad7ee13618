"""The same rules and the same requests, for any broker: what it answers to a client that may do nothing, some
or everything.

The administrator comes from 127.0.0.1, where one rule for each type of resource allows everything, and so do
the connections of the broker with itself. The client under test comes from 127.0.0.2. Both are
User:ANONYMOUS, so no broker needs authentication. The broker has `allow.everyone.if.no.acl.found`, for the
first rules.
"""

import time

from sparklog.wire.messages import (
    create_topics,
)
from sparklog_server.metadata.acls import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.compatibility.access_client import (
    ADMINISTRATOR,
    CLIENT,
    Peer,
    add_rules,
    outcome,
    remove_rules,
    rule,
)
from tests.compatibility.access_coordinators import TOPICS, Asked
from tests.compatibility.access_requests import requests

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
}
_WAIT_S = 30


def rights() -> dict[str, list[AclRule]]:
    """The rules of the client, by the name of the cell."""
    topic, group, txn = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
    cluster, every = ResourceType.CLUSTER, Operation.ALL
    seen = [rule(kind, every, "seen", pattern=PatternType.PREFIXED) for kind in (topic, group, txn)]
    all_of = [rule(kind, every, "*") for kind in (topic, group, txn)]
    return {
        "nothing": [],
        "half": seen,
        "half by name": [rule(kind, every, "seen") for kind in (topic, group, txn)],
        "describe": [
            *(rule(kind, Operation.DESCRIBE, "*") for kind in (topic, group, txn)),
            rule(cluster, Operation.DESCRIBE, "kafka-cluster"),
        ],
        "read": [rule(kind, Operation.READ, "*") for kind in (topic, group)],
        "write": [rule(kind, Operation.WRITE, "*") for kind in (topic, txn)],
        "configs": [
            *(rule(kind, Operation.ALTER_CONFIGS, "*") for kind in (topic, group)),
            rule(cluster, Operation.DESCRIBE_CONFIGS, "kafka-cluster"),
        ],
        "create in the cluster": [
            rule(cluster, Operation.CREATE, "kafka-cluster"),
            rule(topic, Operation.DESCRIBE, "*"),
        ],
        "broker": [rule(cluster, Operation.CLUSTER_ACTION, "kafka-cluster")],
        "idempotent": [rule(cluster, Operation.IDEMPOTENT_WRITE, "kafka-cluster")],
        "cluster": [rule(cluster, every, "kafka-cluster")],
        "all but the hidden": [
            *all_of,
            *(
                rule(kind, every, "hid", pattern=PatternType.PREFIXED, permission=Permission.DENY)
                for kind in (topic, group, txn)
            ),
        ],
        "read denied": [*all_of, rule(topic, Operation.READ, "seen", permission=Permission.DENY)],
        "everything": [*all_of, rule(cluster, every, "kafka-cluster")],
    }


def prepare(admin: Peer) -> None:
    """The rules of the administrator, two topics, two groups with offsets, and both coordinators."""
    names = {ResourceType.CLUSTER: "kafka-cluster"}
    add_rules(
        admin,
        [
            rule(kind, Operation.ALL, names.get(kind, "*"), host=ADMINISTRATOR)
            for kind in ResourceType
            if kind is not ResourceType.ANY
        ],
    )
    topics = [create_topics.CreatableTopic(one, 1, 1) for one in TOPICS]
    admin.ask(create_topics.CreateTopicsRequest(topics, 10_000), create_topics.CreateTopicsResponse)
    for one in TOPICS:
        _until_done(admin, requests("-")[f"OffsetCommit of {one}"], "FindCoordinator of groups")
        _until_done(admin, requests("-")[f"InitTransactions of {one}"], "FindCoordinator of transactions")
    _until_done(admin, requests("-")["Produce"], "FindCoordinator of groups")


def _until_done(admin: Peer, asked: Asked, found_by: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        admin.ask(*requests("-")[found_by])
        reply = admin.ask(*asked)
        if all("error_code" not in told or "=NONE" in told for told in outcome(reply)):
            return
        assert time.monotonic() < deadline, reply


def outcomes(bootstrap: str, cells: list[str]) -> dict[tuple[str, str], list[str]]:
    """What the broker answers, by rights and request."""
    found: dict[tuple[str, str], list[str]] = {}
    with Peer(bootstrap, ADMINISTRATOR) as admin, Peer(bootstrap, CLIENT) as client:
        prepare(admin)
        for cell in cells:
            rules = rights()[cell]
            if rules:
                add_rules(admin, rules)
            for name, asked in requests(cell).items():
                try:
                    found[cell, name] = outcome(client.ask(*asked))
                except (OSError, AssertionError) as error:
                    error.add_note(f"{cell}: {name}")
                    raise
            remove_rules(admin)
    return found


def is_refused(told: list[str]) -> bool:
    return any("AUTHORIZATION_FAILED" in one for one in told)
