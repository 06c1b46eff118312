"""A pattern that is matched against whole texts, and may come from anybody.

`re` tries one way after the other, and a pattern such as `(a*)*b` makes it try for ever. Here all
ways are followed at once: each character of the text takes the set of places in the pattern where
a match may stand to the next set. So a match takes at most the length of the text times the size of
the pattern, and pauses on the way. Sets and steps that were met are kept, up to a bound.

Called with patterns of clients: of topics that members subscribe to, and of ListTransactions.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, TypeAlias

from kraftrio.base.patterns.charsets import CharSet, is_word_character
from kraftrio.base.patterns.syntax import (
    Assertion,
    Choice,
    Node,
    PatternError,
    Repeat,
    Sequence,
    parse_pattern,
)

_MAX_LENGTH: Final = 4_000  # characters of a pattern
_MAX_SIZE: Final = 2_000  # places in a pattern, with what each has to look at
_MAX_KEPT: Final = 20_000  # places, in all the sets that are kept
_PAUSE_AFTER: Final = 2_000  # places that were looked at

_BITS: Final = {assertion: 1 << i for i, assertion in enumerate(Assertion)}


class Pattern:
    """A pattern in the syntax of RE2.

    Raises:
        PatternError: the text is no pattern, or is too large.
    """

    __slots__ = ("_code", "_has_assertions", "_kept_places", "_steps")

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise PatternError("the pattern is too long")
        self._code = _compile(parse_pattern(text))
        self._has_assertions = any(isinstance(each, Assertion) for each in self._code)
        self._steps: dict[tuple[frozenset[int], int, str], frozenset[int]] = {}
        self._kept_places = 0

    def match(self, text: str) -> Generator[None, None, bool]:
        """Whether the pattern matches all of a text; pauses while that takes long."""
        places = frozenset((0,))
        before = ""
        work = 0
        for character in text:
            key = places, self._facts(before, character), character
            following = self._steps.get(key)
            if following is None:
                work += len(self._code)
                following = self._step(*key)
                self._keep(key, following)
            places = following
            if not places:
                return False
            before = character
            work += 1 + len(places)
            if work >= _PAUSE_AFTER:
                work = 0
                yield
        return len(self._code) in self._reached(places, self._facts(before, ""))

    def _keep(self, key: tuple[frozenset[int], int, str], following: frozenset[int]) -> None:
        """Remember a step; everything before is forgotten once it is too much."""
        self._kept_places += 1 + len(following)
        if self._kept_places > _MAX_KEPT:
            self._steps.clear()
            self._kept_places = 1 + len(following)
        self._steps[key] = following

    def _step(self, places: frozenset[int], facts: int, character: str) -> frozenset[int]:
        """The places after a character."""
        following = []
        for place in self._reached(places, facts):
            if place < len(self._code):
                wanted = self._code[place]
                if isinstance(wanted, CharSet) and character in wanted:
                    following.append(place + 1)
        return frozenset(following)

    def _reached(self, places: frozenset[int], facts: int) -> set[int]:
        """The places that can be reached from others without a character."""
        reached = set(places)
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place == len(self._code):
                continue
            instruction = self._code[place]
            if isinstance(instruction, CharSet):
                continue
            if isinstance(instruction, Assertion):
                nexts: tuple[int, ...] = (place + 1,) if facts & _BITS[instruction] else ()
            else:
                nexts = instruction.places
            for each in nexts:
                if each not in reached:
                    reached.add(each)
                    waiting.append(each)
        return reached

    def _facts(self, before: str, after: str) -> int:
        """The assertions that hold between two characters, as bits; no character: the ends."""
        if not self._has_assertions:
            return 0
        is_boundary = _is_of_word(before) is not _is_of_word(after)
        holds = {
            Assertion.TEXT_START: not before,
            Assertion.TEXT_END: not after,
            Assertion.LINE_START: before in ("", "\n"),
            Assertion.LINE_END: after in ("", "\n"),
            Assertion.WORD_BOUNDARY: is_boundary,
            Assertion.NO_WORD_BOUNDARY: not is_boundary,
        }
        return sum(_BITS[assertion] for assertion, is_true in holds.items() if is_true)


def _is_of_word(character: str) -> bool:
    return bool(character) and is_word_character(character)


# --- from the tree to places ---


class _Jump(NamedTuple):
    """Goes on at other places, without a character."""

    places: tuple[int, ...]


_Instruction: TypeAlias = CharSet | Assertion | _Jump
"""What is at a place. A character that fits, or an assertion that holds, leads to the next one."""


def _compile(node: Node) -> list[_Instruction]:
    """Lay a pattern out; to come to the place after the last one is to match it."""
    layout = _PatternLayout()
    layout.add(node)
    return layout.code


class _PatternLayout:
    """The places so far."""

    def __init__(self) -> None:
        self.code: list[_Instruction] = []
        self._size = 0

    def add(self, node: Node) -> None:
        if isinstance(node, CharSet):
            self._put(node, len(node.ranges) + len(node.categories) + 15 * len(node.parts))
        elif isinstance(node, Assertion):
            self._put(node)
        elif isinstance(node, Sequence):
            for part in node.parts:
                self.add(part)
        elif isinstance(node, Choice):
            self._add_choice(node)
        else:
            self._add_repeat(node)

    def _put(self, instruction: _Instruction, size: int = 1) -> int:
        self._size += max(size, 1)
        if self._size > _MAX_SIZE:
            raise PatternError("the pattern is too large")
        self.code.append(instruction)
        return len(self.code) - 1

    def _add_choice(self, node: Choice) -> None:
        choice = self._put(_Jump(()))
        starts, ends = [], []
        for part in node.parts:
            starts.append(len(self.code))
            self.add(part)
            ends.append(self._put(_Jump(())))
        self.code[choice] = _Jump(tuple(starts))
        for end in ends:
            self.code[end] = _Jump((len(self.code),))

    def _add_repeat(self, node: Repeat) -> None:
        for _ in range(node.minimum):
            start = len(self.code)
            self.add(node.part)
            if len(self.code) == start:
                break  # nothing, however often
        if node.maximum is None:
            again = self._put(_Jump(()))
            self.add(node.part)
            self._put(_Jump((again,)))
            self.code[again] = _Jump((again + 1, len(self.code)))
            return
        skips = []
        for _ in range(node.maximum - node.minimum):
            skips.append(self._put(_Jump(())))
            self.add(node.part)
        for skip in skips:
            self.code[skip] = _Jump((skip + 1, len(self.code)))
