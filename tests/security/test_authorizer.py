"""The compiled authorizer decides as Kafka's StandardAuthorizer does, rule by rule."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import Offset, Uuid
from sparklog.wire.schema import Message
from sparklog_server.metadata.acls import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    record_of,
)
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import RemoveAccessControlEntryRecord
from sparklog_server.security import NotLoaded
from sparklog_server.security.authorizer import Authorizer
from tests.properties import examples

OPERATIONS = [one for one in Operation if one not in (Operation.ANY, Operation.ALL)]


def rule(
    permission: Permission,
    operation: Operation,
    name: str,
    *,
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    kind: ResourceType = ResourceType.TOPIC,
) -> AclRule:
    return AclRule(kind, name, pattern, principal, host, operation, permission)


def compiled(
    rules: Iterable[AclRule], *, super_users: Iterable[str] = (), allows_without_rules: bool = False
) -> Authorizer:
    made = Authorizer(frozenset(super_users), allows_without_rules=allows_without_rules)
    made.is_loaded = True
    made.change(added=rules)
    return made


# -- the reference: Kafka's rules, read from StandardAuthorizerData, one rule at a time


def implies(asked: Operation, given: int) -> bool:
    if asked is Operation.DESCRIBE:
        return given in (
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
        )
    if asked is Operation.DESCRIBE_CONFIGS:
        return given in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    return asked == given


def concerns(one: AclRule, kind: int, name: str) -> bool:
    if one.resource_type != kind:
        return False
    if one.pattern_type == PatternType.PREFIXED:
        return name.startswith(one.resource_name)
    return one.resource_name in (name, "*")


def applies(one: AclRule, principal: str, host: str) -> bool:
    return one.principal in (principal, "User:*") and one.host in (host, "*")


def expected(
    rules: list[AclRule], default: bool, principal: str, host: str, asked: Operation, kind: int, name: str
) -> bool:
    concerning = [one for one in rules if concerns(one, kind, name)]
    if not concerning:
        return default
    applying = [one for one in concerning if applies(one, principal, host)]
    if any(
        one.permission_type == Permission.DENY and one.operation in (asked, Operation.ALL) for one in applying
    ):
        return False
    return any(
        one.permission_type == Permission.ALLOW
        and (one.operation == Operation.ALL or implies(asked, one.operation))
        for one in applying
    )


def expected_by_type(
    rules: list[AclRule], default: bool, principal: str, host: str, asked: Operation, kind: int
) -> bool:
    if expected(rules, default, principal, host, asked, kind, "hardcode"):
        return True
    applying = [
        one
        for one in rules
        if one.resource_type == kind
        and applies(one, principal, host)
        and one.operation in (asked, Operation.ALL)
    ]
    denied = {
        (one.pattern_type, one.resource_name) for one in applying if one.permission_type == Permission.DENY
    }
    allowed = {
        (one.pattern_type, one.resource_name) for one in applying if one.permission_type == Permission.ALLOW
    }
    if (PatternType.LITERAL, "*") in denied:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    for pattern, name in allowed:
        if pattern == PatternType.LITERAL and (pattern, name) in denied:
            continue
        if not any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1)):
            return True
    return False


NAMES = st.text("ab*", min_size=1, max_size=4)
RULES = st.builds(
    AclRule,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    resource_name=NAMES,
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*", "Other:alice"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    operation=st.sampled_from([one for one in Operation if one is not Operation.ANY]),
    permission_type=st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
ASKED = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "Other:alice"]),
    st.sampled_from(["10.0.0.1", "10.0.0.3"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
)


@examples(400)
@given(
    rules=st.lists(RULES, max_size=14),
    removed=st.sets(st.integers(0, 13)),
    asked=st.lists(ASKED, min_size=1, max_size=12),
    default=st.booleans(),
)
def test_it_decides_as_one_that_reads_every_rule_after_each_change(
    rules: list[AclRule], removed: set[int], asked: list[tuple[str, str, Operation, int, str]], default: bool
) -> None:
    authorizer = compiled(rules, allows_without_rules=default)
    for kept in (rules, [one for place, one in enumerate(rules) if place not in removed]):
        for principal, host, operation, kind, name in asked:
            assert authorizer.authorize(principal, host, operation, kind, name) == expected(
                kept, default, principal, host, operation, kind, name
            )
            if operation not in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
                assert authorizer.authorize_by_resource_type(
                    principal, host, operation, kind
                ) == expected_by_type(kept, default, principal, host, operation, kind)
        authorizer.change(removed=[one for place, one in enumerate(rules) if place in removed])


@examples(200)
@given(st.lists(st.tuples(st.booleans(), st.text("abc", min_size=1, max_size=5)), max_size=40), NAMES)
def test_prefixes_that_come_and_go_are_found_by_every_name(steps: list[tuple[bool, str]], name: str) -> None:
    authorizer = compiled([])
    held: dict[str, AclRule] = {}
    for is_added, prefix in steps:
        one = rule(Permission.ALLOW, Operation.READ, prefix, pattern=PatternType.PREFIXED)
        if is_added and prefix not in held:
            held[prefix] = one
            authorizer.change(added=[one])
        elif prefix in held:
            authorizer.change(removed=[held.pop(prefix)])
        for asked in (name, prefix, prefix + "a", prefix + "d"):
            is_allowed = authorizer.authorize("User:alice", "h", Operation.READ, ResourceType.TOPIC, asked)
            assert is_allowed == any(asked.startswith(one) for one in held)


# -- by example


def may(authorizer: Authorizer, operation: Operation, name: str = "t", **more: object) -> bool:
    host, principal = str(more.get("host", "10.1.2.3")), str(more.get("principal", "User:alice"))
    groups = more.get("groups", ())
    assert isinstance(groups, tuple)
    return authorizer.authorize(principal, host, operation, ResourceType.TOPIC, name, groups)


def test_a_denial_wins_over_every_allowance() -> None:
    authorizer = compiled(
        [
            rule(Permission.ALLOW, Operation.ALL, "t"),
            rule(Permission.DENY, Operation.WRITE, "*", principal="User:*", host="10.1.2.3"),
        ]
    )
    assert may(authorizer, Operation.READ)
    assert not may(authorizer, Operation.WRITE)
    assert may(authorizer, Operation.WRITE, host="10.1.2.4")


def test_a_denial_of_read_does_not_deny_describe() -> None:
    authorizer = compiled(
        [rule(Permission.ALLOW, Operation.WRITE, "t"), rule(Permission.DENY, Operation.READ, "t")]
    )
    assert may(authorizer, Operation.DESCRIBE)


def test_super_users_are_allowed_whatever_the_rules_say_and_before_any_is_known() -> None:
    authorizer = Authorizer(frozenset({"User:admin", "Group:admins"}), allows_without_rules=True)
    assert may(authorizer, Operation.READ, principal="User:admin")
    assert may(authorizer, Operation.READ, groups=("Group:admins",))
    with pytest.raises(NotLoaded):
        may(authorizer, Operation.READ)


def test_a_resource_without_rules_is_decided_by_the_default_and_one_with_rules_is_not() -> None:
    authorizer = compiled(
        [rule(Permission.ALLOW, Operation.READ, "t", principal="User:bob")], allows_without_rules=True
    )
    assert may(authorizer, Operation.READ, "u")
    assert not may(authorizer, Operation.READ, "t")


def test_a_rule_of_a_group_counts_for_its_members() -> None:
    authorizer = compiled([rule(Permission.ALLOW, Operation.READ, "t", principal="Group:ops")])
    assert may(authorizer, Operation.READ, groups=("Group:dev", "Group:ops"))
    assert not may(authorizer, Operation.READ, groups=("Group:dev",))


@pytest.mark.parametrize(
    ("host", "address", "is_inside"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("10.1.9.9/16", "10.1.2.3", True),
        ("2001:db8::/32", "2001:db8::17", True),
        ("2001:db8::/32", "10.1.2.3", False),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "::1", True),
    ],
)
def test_a_host_may_be_a_network_or_either_text_of_an_address(
    host: str, address: str, is_inside: bool
) -> None:
    authorizer = compiled([rule(Permission.ALLOW, Operation.READ, "t", host=host)])
    assert may(authorizer, Operation.READ, host=address) == is_inside


def test_a_rule_with_two_ids_counts_until_both_are_removed() -> None:
    denial = rule(Permission.DENY, Operation.READ, "t")
    authorizer = compiled([rule(Permission.ALLOW, Operation.READ, "t"), denial, denial])
    authorizer.change(removed=[denial])
    assert not may(authorizer, Operation.READ)
    authorizer.change(removed=[denial])
    assert may(authorizer, Operation.READ)


def test_rules_with_unknown_numbers_decide_nothing() -> None:
    unknown = [
        AclRule(99, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW),
        AclRule(ResourceType.TOPIC, "t", 9, "User:alice", "*", Operation.READ, Permission.ALLOW),
        AclRule(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", -1, Permission.ALLOW),
        AclRule(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, 9),
    ]
    assert not may(compiled(unknown), Operation.READ)


def test_it_follows_the_image_change_by_change() -> None:
    authorizer = Authorizer(frozenset(), allows_without_rules=False)
    one = rule(Permission.ALLOW, Operation.READ, "t")
    acl_id = Uuid(bytes([7] * 16))
    records: list[tuple[Offset, Message]] = [(Offset(1), record_of(acl_id, one))]
    image, delta = MetadataImage().apply(records)
    authorizer.follow(delta)
    assert may(authorizer, Operation.READ)
    _, delta = image.apply([(Offset(2), RemoveAccessControlEntryRecord(acl_id))])
    authorizer.follow(delta)
    assert not may(authorizer, Operation.READ)
