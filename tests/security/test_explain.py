"""`explain` agrees with the authorizer, and what it names is what decides."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog_server.metadata.acls import AclRule, Operation, PatternType, Permission, ResourceType
from sparklog_server.security.explain import Reason, explain
from tests.properties import examples
from tests.security.test_authorizer import ASKED, RULES, compiled, rule


@examples(300)
@given(rules=st.lists(RULES, max_size=10, unique=True), asked=ASKED, default=st.booleans())
def test_it_agrees_with_the_authorizer_and_its_advice_allows(
    rules: list[AclRule], asked: tuple[str, str, Operation, int, str], default: bool
) -> None:
    principal, host, operation, kind, name = asked
    authorizer = compiled(rules, allows_without_rules=default)
    told = explain(rules, *asked, allows_without_rules=default)
    assert told.is_allowed == authorizer.authorize(principal, host, operation, kind, name)
    if not told.is_allowed:
        authorizer.change(removed=told.in_the_way, added=() if told.missing is None else (told.missing,))
        assert authorizer.authorize(principal, host, operation, kind, name)


def test_it_names_the_rule_that_denies_and_what_is_missing_besides() -> None:
    denial = rule(Permission.DENY, Operation.READ, "pay", pattern=PatternType.PREFIXED, principal="User:*")
    told = explain([denial], "User:alice", "10.0.0.1", Operation.READ, ResourceType.TOPIC, "payments")
    assert (told.is_allowed, told.reason, told.rule) == (False, Reason.DENIED_BY_RULE, denial)
    assert told.in_the_way == (denial,)
    assert told.missing == rule(Permission.ALLOW, Operation.READ, "payments")
    assert str(denial) == "DENY READ on TOPIC:PREFIXED:pay for User:* from host *"


def test_super_users_and_the_default_need_no_rule() -> None:
    asked = ("User:a", "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t")
    assert explain([], *asked, super_users=frozenset({"User:a"})).reason is Reason.SUPER_USER
    told = explain([], *asked, allows_without_rules=True)
    assert (told.is_allowed, told.reason, told.missing) == (True, Reason.NO_RULE_FOR_RESOURCE, None)
