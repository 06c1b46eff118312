"""The first users of a new cluster: what `kraftrio start --add-scram` says.

    SCRAM-SHA-256=[name=admin,password=secret]
    SCRAM-SHA-512=[name=admin,iterations=8192,salt="MTIz",saltedpassword="NDU2"]

Behaviour (Kafka's `kafka-storage format --add-scram`): a password is salted here, with a salt at
random unless one is given; or it comes salted, with its salt. The controller that leads a new
cluster first writes the credentials into its metadata. A cluster that exists keeps its own.

Pure but for the random salt, which is passed in. Called by: the command line.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final

from kraftrio.kraft_meta.metadata.scram_image import ScramUser, credential_record
from kraftrio.kraft_meta.metadata.security_records import UserScramCredentialRecord
from kraftrio.wire.sasl.scram_keys import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of,
    salted_password,
)

_SALT_BYTES: Final = 20
_FORM = re.compile(r"\s*(?P<mechanism>[^=\s]+)\s*=\s*\[(?P<fields>.*)\]\s*", re.DOTALL)
_FIELD = re.compile(
    r'\s*(?P<name>[a-z]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|\Z)'
)
_FIELDS = ("name", "password", "salt", "saltedpassword", "iterations")


class FirstUserError(ValueError):
    """The text does not have the form above; the message is a plain sentence without a password."""


def first_credentials(
    texts: Sequence[str], new_salt: Callable[[int], bytes]
) -> tuple[UserScramCredentialRecord, ...]:
    """Return the records of the credentials that texts ask for.

    Raises:
        FirstUserError: one of them is malformed, or two are about the same credential.
    """
    records: dict[ScramUser, UserScramCredentialRecord] = {}
    for text in texts:
        record = _record(text, new_salt)
        user = ScramUser(record.name, record.mechanism)
        if user in records:
            raise FirstUserError(f"the user {user.name} is given two credentials of a mechanism")
        records[user] = record
    return tuple(records.values())


def _record(text: str, new_salt: Callable[[int], bytes]) -> UserScramCredentialRecord:
    form = _FORM.fullmatch(text)
    if form is None:
        raise FirstUserError("a SCRAM user is given as SCRAM-SHA-256=[name=NAME,password=PASSWORD]")
    mechanism = ScramMechanism.of_name(form["mechanism"])
    if mechanism is None:
        names = " and ".join(one.mechanism_name for one in ScramMechanism)
        raise FirstUserError(f"{form['mechanism']} is no SCRAM mechanism: there are {names}")
    fields = _fields(form["fields"])
    name = fields.get("name")
    if not name:
        raise FirstUserError("a SCRAM user has a name")
    iterations = _iterations(fields.get("iterations"))
    salt = _base64(fields, "salt")
    salted = _base64(fields, "saltedpassword")
    password = fields.get("password")
    if (password is None) == (salted is None):
        raise FirstUserError(f"the user {name} has a password, or a saltedpassword with its salt")
    if salted is not None and salt is None:
        raise FirstUserError(f"the saltedpassword of the user {name} has no salt with it")
    if salt is None:
        salt = new_salt(_SALT_BYTES)
    if salted is None:
        if not password:
            raise FirstUserError(f"the password of the user {name} is empty")
        salted = salted_password(mechanism, password, salt, iterations)
    credential = credential_of(mechanism, salted, salt, iterations)
    return credential_record(ScramUser(name, mechanism), credential)


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        field = _FIELD.match(text, position)
        if field is None or field.end() == position:
            raise FirstUserError("the fields of a SCRAM user are NAME=VALUE, with commas between")
        name = field["name"]
        if name not in _FIELDS or name in fields:
            raise FirstUserError(
                f"a SCRAM user has the fields {', '.join(_FIELDS)}, each once: {name} is wrong"
            )
        fields[name] = field["plain"].strip() if field["quoted"] is None else field["quoted"]
        position = field.end()
    return fields


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not (text.isascii() and text.isdigit()) or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise FirstUserError(
            f"iterations is a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {text!r}"
        )
    return int(text)


def _base64(fields: dict[str, str], name: str) -> bytes | None:
    text = fields.get(name)
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise FirstUserError(f"{name} of a SCRAM user is not base64") from error
