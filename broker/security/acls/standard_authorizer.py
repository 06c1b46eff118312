"""Decides by the ACLs in the metadata: `StandardAuthorizer`.

Rules (Apache Kafka's StandardAuthorizer, KIP-801)
1. A super user may do everything, even before the metadata is known; nobody else may do anything
   then.
2. An ACL counts for a principal if it names it or `User:*`, and for a host if it names it or `*`.
   It counts for a resource if its pattern is the resource's name, a prefix of that, or `*`.
3. One ACL that denies outweighs all that allow. ALL stands for every operation. A client that is
   allowed to read, write, delete or alter may describe; one that may alter configurations may
   describe them. What is denied implies nothing.
4. Where no ACL counts for a resource, whoever it names, `allow.everyone.if.no.acl.found` decides.
5. A principal may do something to some resource of a type unless what denies it covers all that
   allows it. Here nothing is implied by another operation.

A decision costs a look into a table. One that was not made since the last change costs a few, and
one for each length that prefixes have; for rule 5 also one for each ACL that allows without effect.
What changes costs as much as it changes.

Called by: the dispatcher and handlers, through the port `Authorizer`; `update` by the node, with
each image of the metadata, before anybody else acts by that image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, TypeAlias

from kraftrio.broker.security.authorizer import AnyResource
from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.kraft_meta.metadata.acl_image import Acl, AclChanges
from kraftrio.wire.protocol.acls import (
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
)

_EVERY_PRINCIPAL: Final = "User:*"
_EVERY_OPERATION: Final = -1  # all bits
_ALL: Final = 1 << AclOperation.ALL
_DESCRIBES: Final = (
    1 << AclOperation.READ
    | 1 << AclOperation.WRITE
    | 1 << AclOperation.DELETE
    | 1 << AclOperation.ALTER
)
_ALLOW: Final = int(AclPermissionType.ALLOW)
_DENY: Final = int(AclPermissionType.DENY)
_LITERAL: Final = int(PatternType.LITERAL)
_PREFIXED: Final = int(PatternType.PREFIXED)
# Kafka asks about a resource of this name first, where any resource of a type will do.
_ANY_NAME: Final = "hardcode"

_MOST_DECISIONS = 20_000  # that are kept; each is a hundred bytes or two


class _Subject(NamedTuple):
    """Whom an ACL names."""

    principal: str
    host: str


class _Pattern(NamedTuple):
    """What an ACL names."""

    resource_type: int
    pattern_type: int
    name: str


class _Rule(NamedTuple):
    """Operations of the ACLs with one pattern and one subject, as bits."""

    allowed: int
    denied: int


_NO_RULE: Final = _Rule(0, 0)
_Question: TypeAlias = tuple[KafkaPrincipal, str, AclOperation, AnyResource]
_Grant: TypeAlias = tuple[int, _Subject, int, int]  # type of resource ... operation, permission


class StandardAuthorizer:
    """See the module.

    Args:
        super_users: who may do everything.
        allow_everyone: `allow.everyone.if.no.acl.found`.
    """

    def __init__(
        self, super_users: Collection[KafkaPrincipal] = (), *, allow_everyone: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._is_loaded = False
        self._rules: dict[_Pattern, dict[_Subject, _Rule]] = {}
        # The same, the other way round, for rule 5.
        self._patterns: dict[_Grant, dict[_Pattern, None]] = {}
        self._prefix_lengths: dict[int, Counter[int]] = {}
        self._decisions: dict[tuple[KafkaPrincipal, str, AnyResource], int] = {}
        self._allowed: set[_Question] = set()  # what they come to: asked with nearly every request

    def update(self, changes: AclChanges) -> None:
        """Decide by the ACLs of a new image from now on."""
        self._is_loaded = True
        if not changes.changed:
            return
        self._forget()
        for acl_id, acl in changes.changed.items():
            former = changes.previous.get(acl_id)
            if former is not None and acl is None:
                self._change(former, is_added=False)
            elif acl is not None and former is None:
                self._change(acl, is_added=True)

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource: AnyResource
    ) -> bool:
        """Decide; see `Authorizer`."""
        asked = principal, host, operation, resource
        return asked in self._allowed or self._decide(asked)

    # ---- decisions

    def _decide(self, asked: _Question) -> bool:
        """Decide what was not allowed before, and keep that."""
        principal, host, operation, resource = asked
        operations = self._decisions.get((principal, host, resource))
        if operations is None:
            if not self._is_loaded and principal not in self._super_users:
                return False
            operations = self._operations(principal, host, resource)
            if len(self._decisions) >= _MOST_DECISIONS:
                self._forget()
            self._decisions[principal, host, resource] = operations
        if not operations >> operation & 1:
            return False
        if len(self._allowed) >= _MOST_DECISIONS:
            self._allowed.clear()
        self._allowed.add(asked)
        return True

    def _forget(self) -> None:
        self._decisions.clear()
        self._allowed.clear()

    def _operations(self, principal: KafkaPrincipal, host: str, resource: AnyResource) -> int:
        """Return what a principal may do to a resource, as bits."""
        resource_type, name = resource
        if principal in self._super_users:
            return _EVERY_OPERATION
        if name is None:
            return self._operations_on_any(principal, host, resource_type)
        return self._operations_on(principal, host, resource_type, name)

    def _operations_on(
        self, principal: KafkaPrincipal, host: str, resource_type: int, name: str
    ) -> int:
        """Rules 2 to 4."""
        allowed = denied = 0
        has_acls = False
        subjects = _subjects(principal, host)
        for pattern in self._patterns_for(resource_type, name):
            rules = self._rules.get(pattern)
            if rules is None:
                continue
            has_acls = True
            for subject in subjects:
                rule = rules.get(subject, _NO_RULE)
                allowed |= rule.allowed
                denied |= rule.denied
        if not has_acls:
            return _EVERY_OPERATION if self._allow_everyone else 0
        return _with_implied(allowed) & ~_each(denied)

    def _patterns_for(self, resource_type: int, name: str) -> Iterator[_Pattern]:
        """Yield the patterns that stand for a name, whether or not there are any ACLs with them."""
        yield _Pattern(resource_type, _LITERAL, name)
        if name != WILDCARD:
            yield _Pattern(resource_type, _LITERAL, WILDCARD)
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield _Pattern(resource_type, _PREFIXED, name[:length])

    def _operations_on_any(self, principal: KafkaPrincipal, host: str, resource_type: int) -> int:
        """Rule 5, for every operation at once."""
        operations = self._operations_on(principal, host, resource_type, _ANY_NAME)
        subjects = _subjects(principal, host)
        for operation in AclOperation:
            if not operations >> operation & 1 and self._may_on_any(
                subjects, operation, resource_type
            ):
                operations |= 1 << operation
        return operations

    def _may_on_any(
        self, subjects: Collection[_Subject], operation: AclOperation, resource_type: int
    ) -> bool:
        denied = dict.fromkeys(self._patterns_with(_DENY, subjects, operation, resource_type))
        if _Pattern(resource_type, _LITERAL, WILDCARD) in denied:
            return False
        return any(
            not self._is_covered(pattern, denied)
            for pattern in self._patterns_with(_ALLOW, subjects, operation, resource_type)
        )

    def _patterns_with(
        self,
        permission: int,
        subjects: Collection[_Subject],
        operation: AclOperation,
        resource_type: int,
    ) -> Iterator[_Pattern]:
        """Yield the patterns for which subjects are allowed, or denied, an operation."""
        for subject in subjects:
            for named in (operation, AclOperation.ALL):
                yield from self._patterns.get((resource_type, subject, named, permission), ())

    def _is_covered(self, pattern: _Pattern, denied: Collection[_Pattern]) -> bool:
        """Return whether what is denied covers all that a pattern stands for."""
        resource_type, pattern_type, name = pattern
        if not denied or (pattern_type == _LITERAL and name == WILDCARD):
            return False
        return pattern in denied or any(
            length <= len(name) and _Pattern(resource_type, _PREFIXED, name[:length]) in denied
            for length in self._prefix_lengths.get(resource_type, ())
        )

    # ---- changes

    def _change(self, acl: Acl, *, is_added: bool) -> None:
        pattern = _Pattern(acl.resource_type, acl.pattern_type, acl.resource_name)
        subject = _Subject(acl.principal, acl.host)
        grant = (acl.resource_type, subject, acl.operation, acl.permission_type)
        if is_added:
            self._patterns.setdefault(grant, {})[pattern] = None
        else:
            del self._patterns[grant][pattern]
            if not self._patterns[grant]:
                del self._patterns[grant]
        self._set_rule(pattern, subject, self._with(acl, pattern, subject, is_added=is_added))

    def _with(self, acl: Acl, pattern: _Pattern, subject: _Subject, *, is_added: bool) -> _Rule:
        """Return a rule with an ACL, or without it."""
        allowed, denied = self._rules.get(pattern, {}).get(subject, _NO_RULE)
        bit = 1 << acl.operation
        if acl.permission_type == _ALLOW:
            return _Rule(allowed | bit if is_added else allowed & ~bit, denied)
        return _Rule(allowed, denied | bit if is_added else denied & ~bit)

    def _set_rule(self, pattern: _Pattern, subject: _Subject, rule: _Rule) -> None:
        is_prefix = pattern.pattern_type == _PREFIXED
        if rule != _NO_RULE:
            if pattern not in self._rules and is_prefix:
                self._count_prefix(pattern, 1)
            self._rules.setdefault(pattern, {})[subject] = rule
            return
        del self._rules[pattern][subject]
        if not self._rules[pattern]:
            del self._rules[pattern]
            if is_prefix:
                self._count_prefix(pattern, -1)

    def _count_prefix(self, pattern: _Pattern, change: int) -> None:
        lengths = self._prefix_lengths.setdefault(pattern.resource_type, Counter())
        lengths[len(pattern.name)] += change
        if not lengths[len(pattern.name)]:
            del lengths[len(pattern.name)]


def _subjects(principal: KafkaPrincipal, host: str) -> tuple[_Subject, ...]:
    """Whom ACLs name that count for a principal at a host."""
    text = str(principal)
    return (
        _Subject(text, host),
        _Subject(text, WILDCARD),
        _Subject(_EVERY_PRINCIPAL, host),
        _Subject(_EVERY_PRINCIPAL, WILDCARD),
    )


def _each(operations: int) -> int:
    """Put every operation in the place of ALL."""
    return _EVERY_OPERATION if operations & _ALL else operations


def _with_implied(allowed: int) -> int:
    """Add what is implied by what is allowed."""
    if allowed & _DESCRIBES:
        allowed |= 1 << AclOperation.DESCRIBE
    if allowed & 1 << AclOperation.ALTER_CONFIGS:
        allowed |= 1 << AclOperation.DESCRIBE_CONFIGS
    return _each(allowed)
