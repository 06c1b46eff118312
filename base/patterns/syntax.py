"""Reads patterns in the syntax of RE2: text to a tree.

What RE2 refuses is refused here, in the words of RE2/J, which Kafka's answers have: references back
to groups, looking ahead or behind, possessive repetition, counts above 1,000. Which part of the
text a group has matched is of no interest, nor whether a repetition is greedy.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kraftrio.base.patterns.charsets import (
    EVERYTHING,
    MAX_CHARACTER,
    NO_LINE_END,
    PERL_CLASSES,
    POSIX_CLASSES,
    CharSet,
    of_characters,
    unicode_class,
)

_MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 100
_ESCAPED: Final[Mapping[str, str]] = {
    "a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"
}  # fmt: skip
_OCTAL: Final = frozenset("01234567")


_BAD_CLASS: Final = "invalid character class range"
_BAD_ESCAPE: Final = "invalid escape sequence"
_BAD_GROUP: Final = "invalid or unsupported Perl syntax"
_BAD_NAME: Final = "invalid named capture"
_BAD_COUNT: Final = "invalid repeat count"
_MISSING_BRACKET: Final = "missing closing ]"
_MISSING_PARENTHESIS: Final = "missing closing )"
_NOTHING_TO_REPEAT: Final = "missing argument to repetition operator"
_REPEATED_TWICE: Final = "invalid nested repetition operator"
_TRAILING_BACKSLASH: Final = "trailing backslash at end of expression"
_UNEXPECTED_PARENTHESIS: Final = "regexp/syntax: internal error"  # as RE2/J has it


class PatternError(ValueError):
    """The text is not a pattern; the reason in a few words."""


class Assertion(Enum):
    """What holds between two characters."""

    TEXT_START = "\\A"
    TEXT_END = "\\z"
    LINE_START = "(?m)^"
    LINE_END = "(?m)$"
    WORD_BOUNDARY = "\\b"
    NO_WORD_BOUNDARY = "\\B"


class Sequence(NamedTuple):
    """One part after the other; nothing at all, if there are none."""

    parts: list[Node]


class Choice(NamedTuple):
    """One of some parts."""

    parts: list[Node]


class Repeat(NamedTuple):
    """A part some times in a row; no `maximum`: however often."""

    part: Node
    minimum: int
    maximum: int | None


Node: TypeAlias = CharSet | Assertion | Sequence | Choice | Repeat


class _Flags(NamedTuple):
    ignores_case: bool = False
    is_multiline: bool = False
    dot_matches_line_end: bool = False


_ASSERTION_ESCAPES: Final[Mapping[str, Assertion]] = {
    "A": Assertion.TEXT_START,
    "z": Assertion.TEXT_END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}
_FLAGS: Final[Mapping[str, str]] = {
    "i": "ignores_case", "m": "is_multiline", "s": "dot_matches_line_end"
}  # fmt: skip


def parse_pattern(text: str) -> Node:
    """Read a pattern.

    Raises:
        PatternError: what is wrong with it, in a few words.
    """
    parser = _PatternParser(text)
    node = parser.choice(_Flags(), 0)
    if not parser.is_at_end:
        raise PatternError(_UNEXPECTED_PARENTHESIS)
    return node


class _PatternParser:
    """Reads from a position onwards; every method leaves it after what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._names: set[str] = set()

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, if_at_end: str) -> str:
        if self.is_at_end:
            raise PatternError(if_at_end)
        self._at += 1
        return self._text[self._at - 1]

    def _take_if(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _take_until(self, end: str, if_missing: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise PatternError(if_missing)
        start, self._at = self._at, found + len(end)
        return self._text[start:found]

    # --- choices, sequences, repetitions ---

    def choice(self, flags: _Flags, depth: int) -> Node:
        """Read up to the end of a group, or of the text."""
        if depth > _MAX_DEPTH:
            raise PatternError("the pattern nests too deeply")
        choices: list[Node] = []
        parts: list[Node] = []
        while not self.is_at_end and self._peek() != ")":
            if self._take_if("|"):
                choices.append(Sequence(parts))
                parts = []
            elif self._text.startswith("(?", self._at):
                flags = self._special_group(parts, flags, depth)
            elif self._take_if("\\Q"):
                end = self._text.find("\\E", self._at)
                end = len(self._text) if end < 0 else end
                quoted = self._text[self._at : end]
                parts += [_literal(each, flags) for each in quoted]
                self._at = min(end + 2, len(self._text))
            elif not self._repetition(parts):
                parts.append(self._atom(flags, depth))
        choices.append(Sequence(parts))
        return choices[0] if len(choices) == 1 else Choice(choices)

    def _repetition(self, parts: list[Node]) -> bool:
        """Read an operator that repeats the last part; False if there is none."""
        counts = self._repeat_counts()
        if counts is None:
            return False
        if not parts:
            raise PatternError(_NOTHING_TO_REPEAT)
        self._take_if("?")  # not greedy: it matches the same texts
        if self._repeat_counts() is not None:
            raise PatternError(_REPEATED_TWICE)
        parts[-1] = Repeat(parts[-1], *counts)
        return True

    def _repeat_counts(self) -> tuple[int, int | None] | None:
        for operator, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take_if(operator):
                return counts
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        first, comma, last = self._text[self._at + 1 : max(end, 0)].partition(",")
        numbers = [each for each in (first, last) if each]
        if end < 0 or not first or not all(map(_is_count, numbers)):
            return None  # a brace like any other character
        if any(len(each) > 4 or int(each) > _MAX_REPEAT for each in numbers):
            raise PatternError(_BAD_COUNT)
        minimum = int(first)
        maximum = (int(last) if last else None) if comma else minimum
        if maximum is not None and maximum < minimum:
            raise PatternError(_BAD_COUNT)
        self._at = end + 1
        return minimum, maximum

    # --- groups ---

    def _special_group(self, parts: list[Node], flags: _Flags, depth: int) -> _Flags:
        """Read `(?...`: a group with a name or flags, or flags up to the end of this group."""
        self._at += 2
        if self._take_if("P<") or self._take_if("<"):
            self._name_group(self._take_until(">", _BAD_NAME))
            parts.append(self._rest_of_group(flags, depth))
            return flags
        inner, is_negated, is_complete = flags, False, True
        while True:
            letter = self._take(_BAD_GROUP)
            if letter in (")", ":") and not is_complete:
                raise PatternError(_BAD_GROUP)
            if letter == ")":
                return inner
            if letter == ":":
                parts.append(self._rest_of_group(inner, depth))
                return flags
            if letter == "-" and not is_negated:
                is_negated, is_complete = True, False
                continue
            if letter in _FLAGS:
                inner = inner._replace(**{_FLAGS[letter]: not is_negated})
            elif letter != "U":  # which repetitions are greedy
                raise PatternError(_BAD_GROUP)
            is_complete = True

    def _name_group(self, name: str) -> None:
        is_word = bool(name) and all(each == "_" or each.isalnum() for each in name)
        if not is_word or not name.isascii():
            raise PatternError(_BAD_NAME)
        if name in self._names:
            raise PatternError("duplicate capture group name")
        self._names.add(name)

    def _rest_of_group(self, flags: _Flags, depth: int) -> Node:
        node = self.choice(flags, depth + 1)
        if not self._take_if(")"):
            raise PatternError(_MISSING_PARENTHESIS)
        return node

    # --- single characters ---

    def _atom(self, flags: _Flags, depth: int) -> Node:
        character = self._take(_MISSING_PARENTHESIS)
        if character == "(":
            return self._rest_of_group(flags, depth)
        if character == "[":
            return self._class(flags)
        if character == "\\":
            return self._escape(flags)
        if character == ".":
            return EVERYTHING if flags.dot_matches_line_end else NO_LINE_END
        if character == "{" and self._repeat_counts() is not None:  # as RE2/J has it
            raise PatternError(_REPEATED_TWICE)
        if character == "^":
            return Assertion.LINE_START if flags.is_multiline else Assertion.TEXT_START
        if character == "$":
            return Assertion.LINE_END if flags.is_multiline else Assertion.TEXT_END
        return _literal(character, flags)

    def _escape(self, flags: _Flags) -> Node:
        letter = self._peek()
        if letter in _ASSERTION_ESCAPES:
            self._at += 1
            return _ASSERTION_ESCAPES[letter]
        found = self._class_escape(flags)
        return _literal(self._character_escape(), flags) if found is None else found

    def _class_escape(self, flags: _Flags) -> CharSet | None:
        """Read what stands for a set after a backslash; None if it stands for one character."""
        letter = self._peek()
        if letter in PERL_CLASSES:
            self._at += 1
            return PERL_CLASSES[letter].folded(ignores_case=flags.ignores_case)
        if letter not in ("p", "P"):
            return None
        self._at += 1
        name = self._take(_BAD_CLASS)
        if name == "{":
            name = self._take_until("}", _BAD_CLASS)
        is_negated = (letter == "P") is not name.startswith("^")
        found = unicode_class(name.removeprefix("^"))
        if found is None:
            raise PatternError(_BAD_CLASS)
        found = found.folded(ignores_case=flags.ignores_case)
        return found.negated() if is_negated else found

    def _character_escape(self) -> str:
        letter = self._take(_TRAILING_BACKSLASH)
        if letter in _ESCAPED:
            return _ESCAPED[letter]
        if letter == "x":
            return self._hex_escape()
        if letter == "0" or (letter in _OCTAL and self._peek() in _OCTAL and self._peek()):
            digits = letter
            while len(digits) < 3 and self._peek() in _OCTAL and self._peek():
                digits += self._take(_BAD_ESCAPE)
            return chr(int(digits, 8))
        if letter.isascii() and letter.isalnum():
            raise PatternError(_BAD_ESCAPE)
        return letter

    def _hex_escape(self) -> str:
        digits = self._take(_BAD_ESCAPE)
        if digits == "{":
            digits = self._take_until("}", _BAD_ESCAPE)
        else:
            digits += self._take(_BAD_ESCAPE)
        is_hex = bool(digits) and all(each in string.hexdigits for each in digits)
        if not is_hex or int(digits, 16) > MAX_CHARACTER:
            raise PatternError(_BAD_ESCAPE)
        return chr(int(digits, 16))

    # --- classes in brackets ---

    def _class(self, flags: _Flags) -> CharSet:
        is_negated = self._take_if("^")
        ranges: list[tuple[int, int]] = []
        parts: list[CharSet] = []
        is_first = True
        while is_first or not self._take_if("]"):
            is_first = False
            part = self._class_within(flags)
            if part is not None:
                parts.append(part)
                continue
            first = last = self._class_character()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._class_character()
                if last < first:
                    raise PatternError(_BAD_CLASS)
            ranges.append((ord(first), ord(last)))
        return CharSet(
            tuple(ranges), (), tuple(parts), is_negated=is_negated, ignores_case=flags.ignores_case
        )

    def _class_within(self, flags: _Flags) -> CharSet | None:
        """Read a class within a class; None if a character comes."""
        if self._text.startswith("[:", self._at) and ":]" in self._text[self._at :]:
            self._at += 2
            name = self._take_until(":]", _BAD_CLASS)
            found = POSIX_CLASSES.get(name.removeprefix("^"))
            if found is None:
                raise PatternError(_BAD_CLASS)
            found = found.folded(ignores_case=flags.ignores_case)
            return found.negated() if name.startswith("^") else found
        if not self._take_if("\\"):
            return None
        found = self._class_escape(flags)
        if found is None:
            self._at -= 1
        return found

    def _class_character(self) -> str:
        character = self._take(_MISSING_BRACKET)
        return self._character_escape() if character == "\\" else character


def _is_count(digits: str) -> bool:
    """Whether a number in braces is one of repetitions."""
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")


def _literal(character: str, flags: _Flags) -> CharSet:
    return of_characters(character, ignores_case=flags.ignores_case)
