"""Sets of characters in a pattern: ranges, Unicode categories and scripts, their complements."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kraftrio.base.patterns.scripts import script_ranges

MAX_CHARACTER: Final = 0x10FFFF


class CharSet(NamedTuple):
    """A set of characters.

    Attributes:
        ranges: of code points, both ends included.
        categories: Unicode general categories, by their names' beginnings ("L", "Nd").
        parts: sets that belong to it, too.
        is_negated: everything but those above.
        ignores_case: a character counts with its other case.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    categories: tuple[str, ...] = ()
    parts: tuple[CharSet, ...] = ()
    is_negated: bool = False
    ignores_case: bool = False

    def __contains__(self, character: object) -> bool:
        assert isinstance(character, str)
        found = self._holds(character)
        if not found and self.ignores_case:
            found = any(map(self._holds, _other_cases(character)))
        return found is not self.is_negated

    def _holds(self, character: str) -> bool:
        code = ord(character)
        return (
            any(first <= code <= last for first, last in self.ranges)
            or any(unicodedata.category(character).startswith(each) for each in self.categories)
            or any(character in part for part in self.parts)
        )

    def folded(self, *, ignores_case: bool) -> CharSet:
        """The same set, in which characters count with their other case if wanted."""
        return self._replace(ignores_case=ignores_case)

    def negated(self) -> CharSet:
        """Everything else."""
        return self._replace(is_negated=not self.is_negated)


# Letters with more than one other case.
_CASES: Final = tuple(map(frozenset, ("Kk\u212a", "Ss\u017f", "\u00c5\u00e5\u212b")))


def _other_cases(character: str) -> Iterable[str]:
    """The characters that differ from this one in case alone."""
    for cases in _CASES:
        if character in cases:
            return cases
    return [other for other in (character.lower(), character.upper()) if len(other) == 1]


def of_characters(characters: Iterable[str], *, ignores_case: bool = False) -> CharSet:
    """The set of some characters."""
    ranges = tuple((ord(each), ord(each)) for each in characters)
    return CharSet(ranges, ignores_case=ignores_case)


def _of_ranges(*ranges: str) -> CharSet:
    return CharSet(tuple((ord(each[0]), ord(each[-1])) for each in ranges))


EVERYTHING: Final = CharSet(((0, MAX_CHARACTER),))
NO_LINE_END: Final = of_characters("\n").negated()

_DIGITS = _of_ranges("09")
_WORD = _of_ranges("09", "AZ", "az", "_")
_SPACE = of_characters("\t\n\f\r ")
# Escapes of a class; with a capital letter it is everything else.
PERL_CLASSES: Final[Mapping[str, CharSet]] = {
    "d": _DIGITS,
    "D": _DIGITS.negated(),
    "s": _SPACE,
    "S": _SPACE.negated(),
    "w": _WORD,
    "W": _WORD.negated(),
}
POSIX_CLASSES: Final[Mapping[str, CharSet]] = {
    "alnum": _of_ranges("09", "AZ", "az"),
    "alpha": _of_ranges("AZ", "az"),
    "ascii": _of_ranges("\0\x7f"),
    "blank": of_characters("\t "),
    "cntrl": _of_ranges("\0\x1f", "\x7f"),
    "digit": _DIGITS,
    "graph": _of_ranges("!~"),
    "lower": _of_ranges("az"),
    "print": _of_ranges(" ~"),
    "punct": _of_ranges("!/", ":@", "[`", "{~"),
    "space": of_characters("\t\n\v\f\r "),
    "upper": _of_ranges("AZ"),
    "word": _WORD,
    "xdigit": _of_ranges("09", "AF", "af"),
}
_CATEGORIES = {
    major + minor
    for major, minors in (
        ("C", "cfos"), ("L", "lmotu"), ("M", "cen"), ("N", "dlo"), ("P", "cdefios"), ("S", "ckmo"),
        ("Z", "lps"),
    )
    for minor in ("", *minors)
}  # fmt: skip


def unicode_class(name: str) -> CharSet | None:
    """The set of a Unicode category by its short name, or of a script; None: there is none."""
    if name == "Any":
        return EVERYTHING
    if name in _CATEGORIES:
        return CharSet(categories=(name,))
    ranges = script_ranges(name)
    return None if ranges is None else CharSet(ranges)


def is_word_character(character: str) -> bool:
    """Whether a character belongs to a word, as `\\b` sees it."""
    return character in _WORD
