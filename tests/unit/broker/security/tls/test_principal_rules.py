"""`ssl.principal.mapping.rules`, and the names of certificates as Java writes them."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from kraftrio.broker.security.principal import ANONYMOUS
from kraftrio.broker.security.tls.distinguished_name import distinguished_name
from kraftrio.broker.security.tls.principal_rules import PrincipalRuleError, PrincipalRules
from tests.security.certificates import Authority

DN = "CN=Duke,OU=ServiceUsers,O=Org,C=US"

# Rules, a name, and what Kafka's SslPrincipalMapper makes of it.
MAPPED = [
    ("", DN, DN),
    ("DEFAULT", DN, DN),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DN, "Duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT", DN, "duke"),
    (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U , DEFAULT", DN, "DUKE@SERVICEUSERS"),
    ("RULE:^CN=nobody$/x/,RULE:^CN=(\\w+),.*$/user-$1/", DN, "user-Duke"),
    (r"RULE:^CN=(.*?),.*$/\$1-$1-$2/", DN, "$1-Duke-$2"),
    (r"RULE:^CN=(.*?),.*$/a\/b/", DN, "a/b"),
    ("RULE:^(CN)=(.*?),.*$/$21/", DN, "Duke1"),
    (" DEFAULT , RULE:a/b/ ", DN, DN),
]


@pytest.mark.parametrize(("rules", "name", "expected"), MAPPED)
def test_rules_map_names(rules: str, name: str, expected: str) -> None:
    assert PrincipalRules(rules).name_for(name) == expected


def test_a_pattern_has_to_match_the_whole_name() -> None:
    with pytest.raises(PrincipalRuleError, match=r"no rule of ssl\.principal"):
        PrincipalRules("RULE:CN=Duke/x/").name_for(DN)


@pytest.mark.parametrize(
    "rules", ["nonsense", "RULE:a/b", "RULE:a/b/X", "DEFAULT DEFAULT", "RULE:(/b/", "default"]
)
def test_rules_that_cannot_be_read(rules: str) -> None:
    with pytest.raises(PrincipalRuleError, match=r"^ssl\.principal\.mapping\.rules has "):
        PrincipalRules(rules)


def test_a_certificate_is_a_user_and_none_is_anonymous() -> None:
    rules = PrincipalRules("RULE:^CN=(.*?)(,.*)?$/$1/L")
    certificate = Authority().client("CN=Alice,O=Org").certificate
    principal = rules.principal_of(certificate.public_bytes(serialization.Encoding.DER))
    assert str(principal) == "User:alice"
    assert rules.principal_of(None) == ANONYMOUS


C, ST, L = NameOID.COUNTRY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME
ORG, OU, CN = (
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COMMON_NAME,
)
# Attributes in the order of the certificate, and X500Principal.getName() of OpenJDK 17.
JAVA_NAMES = [
    ([[(CN, "alice")]], "CN=alice"),
    (
        [
            [(C, "DE")],
            [(ST, "B,e+r")],
            [(L, ' lead#=;<>"\\ trail ')],
            [(ORG, "#Org")],
            [(OU, "Ünit")],
            [(CN, "a b")],
        ],
        'CN=a b,OU=Ünit,O=\\#Org,L=\\ lead\\#\\=\\;\\<\\>\\"\\\\ trail\\ ,ST=B\\,e\\+r,C=DE',
    ),
    (
        [
            [(NameOID.DOMAIN_COMPONENT, "com")],
            [(NameOID.DOMAIN_COMPONENT, "example")],
            [(NameOID.USER_ID, "u1")],
            [(CN, "x")],
        ],
        "CN=x,UID=u1,DC=example,DC=com",
    ),
    (
        [[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(CN, "mail")]],
        "CN=mail,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    ([[(CN, "m1"), (OU, "m2")], [(ORG, "o")]], "O=o,CN=m1+OU=m2"),
    (
        [
            [(NameOID.SERIAL_NUMBER, "77")],
            [(NameOID.TITLE, "T")],
            [(NameOID.STREET_ADDRESS, "S 1")],
            [(CN, "s")],
        ],
        "CN=s,STREET=S 1,2.5.4.12=#0c0154,2.5.4.5=#13023737",
    ),
    ([[(CN, " ")]], "CN=\\ "),
    ([[(CN, "  x  ")]], "CN=\\ \\ x\\ \\ "),
]


@pytest.mark.parametrize(("attributes", "expected"), JAVA_NAMES)
def test_names_are_written_as_java_writes_them(
    attributes: list[list[tuple[x509.ObjectIdentifier, str]]], expected: str
) -> None:
    parts = [[x509.NameAttribute(*one) for one in part] for part in attributes]
    name = x509.Name([x509.RelativeDistinguishedName(part) for part in parts])
    assert distinguished_name(name) == expected


def test_a_long_value_without_a_keyword() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.TITLE, "t" * 60)])
    assert distinguished_name(name) == "2.5.4.12=#0c3c" + "74" * 60
