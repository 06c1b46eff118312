"""The text of `sasl.jaas.config`: a login module, a flag, and options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

Rules (Kafka's JaasConfig)
- Exactly one entry, which ends with a semicolon. The flag is REQUIRED, REQUISITE, SUFFICIENT or
  OPTIONAL in any case; whichever it is, the login is required.
- Words begin with a letter, `_` or `$`; everything else is quoted, by " or ', with the escapes of
  Java. Comments are Java's; an unquoted `/` begins one, too.
- No text of an error holds a value: it may be a password.

Pure. Called by: `login_settings`, and the broker's `security/sasl/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})

_TOKEN = re.compile(
    r"""
    (?P<skip> \s+ | /\*.*?\*/ | /[^*\n][^\n]* | /(?=\n|\Z) )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff][-A-Za-z0-9_.$\u00a0-\U0010ffff]* )
    | (?P<quote> ["'])
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_STRING = {
    '"': re.compile(r'((?:[^"\\\n]|\\.)*)"', re.DOTALL),
    "'": re.compile(r"((?:[^'\\\n]|\\.)*)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """The text does not have the form above; the message is one plain sentence."""


class JaasEntry(NamedTuple):
    """What the text says."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry(module={self.module!r}, options={sorted(self.options)})"


class _Token(NamedTuple):
    text: str
    is_value: bool  # a word or a quoted string, not a sign


_END: Final = _Token("", is_value=False)


def parse_jaas(text: str) -> JaasEntry:
    """Read the text.

    Raises:
        JaasError: it is malformed, or has no entry, or several.
    """
    tokens = list(_tokens(text))
    entries = []
    while tokens:
        entries.append(_take_entry(tokens))
    if not entries:
        raise JaasError("no login module is named")
    if len(entries) > 1:
        raise JaasError(f"{len(entries)} login modules are named, one is wanted")
    return entries[0]


def _take_entry(tokens: list[_Token]) -> JaasEntry:
    """Take the tokens of one entry from the front."""
    tokens.reverse()

    def take() -> _Token:
        return tokens.pop() if tokens else _END

    module = take()
    if not module.is_value:
        raise JaasError(f"a login module is wanted where {module.text!r} stands")
    flag = take()
    if not flag.is_value:
        raise JaasError("the login module is not followed by a flag such as required")
    if flag.text.upper() not in _FLAGS:
        raise JaasError(
            f"{flag.text!r} is not a flag of a login module: one is required, requisite,"
            " sufficient or optional"
        )
    options: dict[str, str] = {}
    while (key := take()) != _Token(";", is_value=False):
        if key is _END:
            raise JaasError("the entry does not end with a semicolon")
        if not key.is_value:
            raise JaasError(f"the name of an option is wanted where {key.text!r} stands")
        sign, value = take(), take()
        if sign.text != "=" or sign.is_value or not value.is_value:
            raise JaasError(
                f"the option {key.text} has no value that is a word or stands in quotes"
            )
        options[key.text] = value.text
    tokens.reverse()
    return JaasEntry(module.text, options)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None, "any character is a token"
        position = match.end()
        if match["word"] is not None:
            yield _Token(match["word"], is_value=True)
        elif match["quote"] is not None:
            string = _STRING[match["quote"]].match(text, position)
            if string is None:
                raise JaasError("a quoted value does not end on its line")
            position = string.end()
            yield _Token(_ESCAPE.sub(_unescape, string[1]), is_value=True)
        elif match["other"] is not None:
            yield _Token(match["other"], is_value=False)


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)
