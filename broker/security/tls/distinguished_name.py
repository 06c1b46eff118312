"""The name in a certificate as Java writes it: what ACLs and super.users have of a TLS client.

Java's X500Principal.getName() writes RFC 2253 in its own way: the last part first, `#` and `=`
escaped wherever they are, every blank at either end, and the values of attributes that RFC 2253
has no keyword for as hexadecimal DER. Pure.

Called by: `principal_rules`.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def distinguished_name(name: x509.Name) -> str:
    """Return a name as Java does."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None:
        return f"{attribute.oid.dotted_string}=#{_value_der(attribute).hex()}"
    value = attribute.value
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    middle = text.strip(" ")
    if not middle:
        return "\\ " * len(text)
    start = text.index(middle)
    before, after = start, len(text) - start - len(middle)
    escaped = "".join(f"\\{one}" if one in _ESCAPED else one for one in middle)
    return "\\ " * before + escaped + "\\ " * after


def _value_der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value alone, of a name that is SEQUENCE { SET { SEQUENCE { oid, value } } }."""
    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        data = data[_head_bytes(data) :]
    return data[_head_bytes(data) + data[1] :]  # an OID is shorter than 128 bytes


def _head_bytes(der: bytes) -> int:
    """How long the tag and the length of an element are."""
    return 2 + (der[1] & 0x7F if der[1] & 0x80 else 0)
