"""Kafka's StandardAuthorizer, compiled: the rules of the image by resource, so that a decision among ten
thousand rules takes about as long as one among ten.

    super user ─────────────────────────────────────────────► allowed
    rules of the literal name, of `*`, of each prefix ──┬─► one that denies matches ────► denied
                                                        ├─► one that allows matches ────► allowed
                                                        ├─► no rule for the resource ───► allow.everyone…
                                                        └─► none matches ───────────────► denied

A rule matches by principal (`User:*` is any), host and operation. An ALLOW of READ, WRITE, DELETE or ALTER
implies DESCRIBE, and one of ALTER_CONFIGS implies DESCRIBE_CONFIGS; a DENY implies nothing. Beyond Kafka, a
rule may have a network as host, and a group of the client as principal (`Group:ops`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from sparklog_server.metadata.acls import (
    WILDCARD,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from sparklog_server.metadata.image import MetadataDelta
from sparklog_server.security import NotLoaded
from sparklog_server.security.hosts import canonical, lies_in

WILDCARD_PRINCIPAL: Final = "User:*"
DECISIONS_MAX: Final = 10_000
"""The number of decisions that are kept: a client asks for the same again and again."""
_NAME_MAX: Final = 256
"""No decision is kept about a longer name: clients choose names, and long ones would fill the memory."""

_ALL_OPERATIONS: Final = (1 << 32) - 1
_IMPLYING: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_ANY_NAME: Final = "hardcode"
"""The name for which Kafka asks first whether a principal may write to any topic: for super users, and where
no rule exists.
"""

Masks = tuple[int, int]
"""The allowed and the denied operations, as bits by their numbers."""


def operations_of(rule: AclRule) -> int:
    """The operations that a rule allows or denies, as bits by their numbers."""
    if rule.operation == Operation.ALL:
        return _ALL_OPERATIONS
    if not Operation.READ <= rule.operation <= Operation.TWO_PHASE_COMMIT:
        return 0
    bits = 1 << rule.operation
    if rule.permission_type == Permission.ALLOW:
        for implied, implying in _IMPLYING.items():
            if rule.operation in implying:
                bits |= 1 << implied
    return bits


class _Grants:
    """The rules of one pattern for one principal, and the operations that follow from them: from any host, by
    address, and by network.

    Invariant: the masks are those of `rules`, which has each rule with the number of its ids.
    """

    __slots__ = ("allowed", "by_address", "by_network", "denied", "is_by_host", "rules")

    def __init__(self) -> None:
        self.rules: dict[AclRule, int] = {}
        self._forget()

    def add(self, rule: AclRule) -> None:
        self.rules[rule] = self.rules.get(rule, 0) + 1
        self._count(rule)

    def remove(self, rule: AclRule) -> None:
        count = self.rules.pop(rule, 1) - 1
        if count:
            self.rules[rule] = count
        self._forget()
        for kept in self.rules:
            self._count(kept)

    def _forget(self) -> None:
        self.allowed = self.denied = 0
        self.is_by_host = False
        self.by_address: dict[str, Masks] = {}
        self.by_network: dict[str, Masks] = {}

    def _count(self, rule: AclRule) -> None:
        bits = operations_of(rule)
        allowed = bits if rule.permission_type == Permission.ALLOW else 0
        denied = bits if rule.permission_type == Permission.DENY else 0
        if rule.host == WILDCARD:
            self.allowed |= allowed
            self.denied |= denied
            return
        self.is_by_host = True
        table, host = (
            (self.by_network, rule.host) if "/" in rule.host else (self.by_address, canonical(rule.host))
        )
        known = table.get(host, (0, 0))
        table[host] = known[0] | allowed, known[1] | denied

    def masks(self, host: str) -> Masks:
        """The operations from that host."""
        allowed, denied = self.by_address.get(host, (0, 0))
        for network, masks in self.by_network.items():
            if lies_in(host, network):
                allowed |= masks[0]
                denied |= masks[1]
        return self.allowed | allowed, self.denied | denied


_Rules = dict[str, _Grants]
"""The rules of one pattern, by principal."""


class _Section:
    """The rules for one type of resource.

    Invariants: `prefixes` is sorted; `parents` has the longest other prefix of each prefix, "" if there is
    none; no table has an entry without rules.
    """

    __slots__ = ("literal", "of_principal", "parents", "prefixed", "prefixes")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.prefixes: list[str] = []
        self.parents: dict[str, str] = {}
        self.of_principal: dict[str, dict[tuple[int, str], _Grants]] = {}

    def matching(self, name: str) -> Iterator[_Rules]:
        """The rules of every pattern that covers the name."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        found = self.literal.get(WILDCARD)
        if found is not None and name != WILDCARD:
            yield found
        if self.prefixes:
            # The longest prefix of the name in the list is this one, or one of its parents: all strings
            # between a prefix of the name and the name itself begin with that prefix.
            place = bisect_right(self.prefixes, name)
            prefix = self.prefixes[place - 1] if place else ""
            while prefix:
                if name.startswith(prefix):
                    yield self.prefixed[prefix]
                prefix = self.parents[prefix]

    def add(self, rule: AclRule) -> None:
        name, principal = rule.resource_name, rule.principal
        table = self._table(rule.pattern_type)
        rules = table.get(name)
        if rules is None:
            rules = table[name] = {}
            if table is self.prefixed:
                self._add_prefix(name)
        grants = rules.get(principal)
        if grants is None:
            grants = rules[principal] = _Grants()
            self.of_principal.setdefault(principal, {})[rule.pattern_type, name] = grants
        grants.add(rule)

    def remove(self, rule: AclRule) -> None:
        name, principal = rule.resource_name, rule.principal
        table = self._table(rule.pattern_type)
        rules = table.get(name, {})
        grants = rules.get(principal)
        if grants is None:
            return
        grants.remove(rule)
        if grants.rules:
            return
        del rules[principal]
        own = self.of_principal[principal]
        del own[rule.pattern_type, name]
        if not own:
            del self.of_principal[principal]
        if not rules:
            del table[name]
            if table is self.prefixed:
                self._remove_prefix(name)

    def _table(self, pattern_type: int) -> dict[str, _Rules]:
        return self.prefixed if pattern_type == PatternType.PREFIXED else self.literal

    def _add_prefix(self, prefix: str) -> None:
        place = bisect_left(self.prefixes, prefix)
        parent = self.prefixes[place - 1] if place else ""
        while parent and not prefix.startswith(parent):
            parent = self.parents[parent]
        self.prefixes.insert(place, prefix)
        self.parents[prefix] = parent
        self._adopt(place + 1, prefix, parent, prefix)

    def _remove_prefix(self, prefix: str) -> None:
        place = bisect_left(self.prefixes, prefix)
        del self.prefixes[place]
        self._adopt(place, prefix, prefix, self.parents.pop(prefix))

    def _adopt(self, place: int, prefix: str, before: str, after: str) -> None:
        """Replace the parent `before` by `after` for the prefixes that begin with `prefix`."""
        while place < len(self.prefixes) and self.prefixes[place].startswith(prefix):
            longer = self.prefixes[place]
            if self.parents[longer] == before:
                self.parents[longer] = after
            place += 1


class Authorizer:
    """Decides by the rules of the newest published image, which `follow` takes over change by change.

    Invariant: `_decided` has only decisions by the present rules.
    """

    def __init__(self, super_users: frozenset[str], *, allows_without_rules: bool) -> None:
        """`allows_without_rules` decides where no rule has a pattern that covers the resource."""
        self.is_loaded = False
        self._super_users = super_users
        self._allows_without_rules = allows_without_rules
        self._decided: dict[tuple[str, str, int, int, str, tuple[str, ...]], bool] = {}
        self._sections = {int(kind): _Section() for kind in ResourceType}

    def follow(self, delta: MetadataDelta) -> None:
        """Take over the changes of a published image."""
        self.is_loaded = True
        if not delta.acls_changed:
            return
        before, after = delta.before.acls, delta.after.acls
        self.change(
            removed=(before[one] for one in delta.acls_changed if one in before),
            added=(after[one] for one in delta.acls_changed if one in after),
        )

    def change(self, *, removed: Iterable[AclRule] = (), added: Iterable[AclRule] = ()) -> None:
        """Remove and add rules; those with an unknown type or pattern are left out."""
        self._decided.clear()
        for rule in removed:
            if _is_known(rule):
                self._sections[rule.resource_type].remove(rule)
        for rule in added:
            if _is_known(rule):
                self._sections[rule.resource_type].add(rule)

    def authorize(
        self,
        principal: str,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        groups: tuple[str, ...] = (),
    ) -> bool:
        """Whether the principal, which is in these groups, may perform the operation on the resource.
        Raises NotLoaded.
        """
        key = principal, host, operation, resource_type, name, groups
        known = self._decided.get(key)
        if known is not None:
            return known
        if self._is_super_user(principal, groups):
            return True
        if not self.is_loaded:
            raise NotLoaded
        is_allowed = self._decide(principal, host, operation, resource_type, name, groups)
        if len(name) <= _NAME_MAX:
            if len(self._decided) >= DECISIONS_MAX:
                self._decided.clear()
            self._decided[key] = is_allowed
        return is_allowed

    def _decide(
        self,
        principal: str,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        groups: tuple[str, ...],
    ) -> bool:
        wanted = 1 << operation
        has_rules = is_allowed = False
        for rules in self._sections[resource_type].matching(name):
            has_rules = True
            for one in (principal, WILDCARD_PRINCIPAL, *groups):
                grants = rules.get(one)
                if grants is not None:
                    allowed, denied = (
                        (grants.allowed, grants.denied) if not grants.is_by_host else grants.masks(host)
                    )
                    if denied & wanted:
                        return False
                    if allowed & wanted:
                        is_allowed = True
        return is_allowed if has_rules else self._allows_without_rules

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: int, resource_type: int, groups: tuple[str, ...] = ()
    ) -> bool:
        """Whether there may be a resource of that type on which the principal may perform the operation
        (KIP-679). The answer is Kafka's, which asks it only for WRITE: no other operation implies that.
        """
        if self.authorize(principal, host, operation, resource_type, _ANY_NAME, groups):
            return True
        wanted = 1 << operation
        allowed: dict[tuple[int, str], None] = {}
        denied: set[tuple[int, str]] = set()
        of_principal = self._sections[resource_type].of_principal
        for one in (principal, WILDCARD_PRINCIPAL, *groups):
            for pattern, grants in of_principal.get(one, {}).items():
                masks = grants.masks(host)
                if masks[0] & wanted:
                    allowed[pattern] = None
                if masks[1] & wanted:
                    denied.add(pattern)
        everything = int(PatternType.LITERAL), WILDCARD
        if everything in denied:
            return False
        return everything in allowed or any(not _is_dominated(one, denied) for one in allowed)

    def _is_super_user(self, principal: str, groups: tuple[str, ...]) -> bool:
        users = self._super_users
        return principal in users or (bool(groups) and not users.isdisjoint(groups))


def _is_known(rule: AclRule) -> bool:
    return ResourceType.TOPIC <= rule.resource_type <= ResourceType.USER and rule.pattern_type in (
        PatternType.LITERAL,
        PatternType.PREFIXED,
    )


def _is_dominated(pattern: tuple[int, str], denied: set[tuple[int, str]]) -> bool:
    """Whether everything that the pattern allows is denied by one other."""
    kind, name = pattern
    if kind == PatternType.LITERAL and pattern in denied:
        return True
    return any((int(PatternType.PREFIXED), name[:size]) in denied for size in range(1, len(name) + 1))
