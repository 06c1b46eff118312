"""`ssl.principal.mapping.rules`: how a certificate's name becomes a principal (KIP-371).

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:...,DEFAULT

Rules
1. The first rule whose pattern matches the whole name counts; `DEFAULT` takes the name as it is. A
   name that no rule matches is not let in.
2. `$1` in a replacement is a group of the pattern; `/L` and `/U` at the end make all of it lower
   or upper case.
3. A client without a certificate is `User:ANONYMOUS`.

Pure. Patterns are the operator's, and are Python's regular expressions where Kafka's are Java's:
what both have means the same.

Called by: the admission of listeners with TLS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from kraftrio.broker.security.principal import ANONYMOUS, KafkaPrincipal
from kraftrio.broker.security.tls.distinguished_name import distinguished_name

PRINCIPAL_RULES: Final = "ssl.principal.mapping.rules"

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\Z)")
_USER: Final = "User"


class PrincipalRuleError(ValueError):
    """Rules that cannot be read, or a name that none of them is for; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class _MappingRule:
    pattern: re.Pattern[str] | None  # None: the name as it is
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return what a name becomes; None: the rule is not for it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda match: _expanded(self.replacement, match), name)
        if self.case == "L":
            return result.lower()
        return result.upper() if self.case == "U" else result


class PrincipalRules:
    """See the module.

    Raises:
        PrincipalRuleError: the text is not a list of rules.
    """

    def __init__(self, text: str) -> None:
        self._rules = _parse(text)

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return the principal of a certificate (DER); None: it is unknown.

        Raises:
            PrincipalRuleError: no rule is for it.
        """
        if certificate is None:
            return ANONYMOUS
        name = distinguished_name(x509.load_der_x509_certificate(certificate).subject)
        return KafkaPrincipal(_USER, self.name_for(name))

    def name_for(self, name: str) -> str:
        """Return what a distinguished name becomes.

        Raises:
            PrincipalRuleError: no rule is for it.
        """
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                return result
        raise PrincipalRuleError(f"no rule of {PRINCIPAL_RULES} is for {name}")


def _parse(text: str) -> list[_MappingRule]:
    rules: list[_MappingRule] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise PrincipalRuleError(
                f"{PRINCIPAL_RULES} has {text[position:]!r}: expected DEFAULT, or"
                " RULE:pattern/replacement/ with an L, a U or nothing after it"
            )
        position = match.end()
        if match[1]:
            rules.append(_MappingRule(None))
            continue
        try:
            pattern = re.compile(match[2])
        except re.error as error:
            raise PrincipalRuleError(
                f"{PRINCIPAL_RULES} has the pattern {match[2]!r}: {error}"
            ) from error
        rules.append(_MappingRule(pattern, match[3], match[4]))
    return rules or [_MappingRule(None)]


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """Fill in the groups as Java does: `$` takes as many digits as there are groups for."""
    result: list[str] = []
    position = 0
    while position < len(replacement):
        char = replacement[position]
        position += 1
        if char == "\\" and position < len(replacement):
            char = replacement[position]
            position += 1
        elif char == "$":
            group, position = _group_at(replacement, position, match.re.groups)
            if group is not None:
                char = match[group] or ""
        result.append(char)
    return "".join(result)


def _group_at(text: str, start: int, groups: int) -> tuple[int | None, int]:
    """Return the number of a group and where it ends; None: it stands for itself, as in Kafka."""
    end = start
    while text[end : end + 1].isdecimal() and int(text[start : end + 1]) <= groups:
        end += 1
    return (int(text[start:end]), end) if end > start else (None, start)
