"""Patterns matched in linear time: against `re` where both know them, and against hostile ones."""

from __future__ import annotations

import random
import re

import pytest

from kraftrio.base.patterns.pattern import Pattern
from kraftrio.base.patterns.syntax import PatternError
from tests.unit.base.patterns.pattern_cases import MATCHES, REFUSED, matches, run


@pytest.mark.parametrize(("pattern", "texts", "others"), MATCHES)
def test_what_a_pattern_matches(pattern: str, texts: list[str], others: list[str]) -> None:
    assert [text for text in texts if not matches(pattern, text)] == []
    assert [text for text in others if matches(pattern, text)] == []


@pytest.mark.parametrize(("pattern", "reason"), REFUSED)
def test_what_is_no_pattern_is_refused(pattern: str, reason: str) -> None:
    """With RE2/J's reason, which clients are sent."""
    with pytest.raises(PatternError) as error:
        Pattern(pattern)
    assert str(error.value) == reason


def _random_pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", r"\s", "", "é", r"\D"])
    if kind < 0.5:
        return _random_pattern(rng, depth - 1) + _random_pattern(rng, depth - 1)
    if kind < 0.7:
        return f"(?:{_random_pattern(rng, depth - 1)}|{_random_pattern(rng, depth - 1)})"
    operator = rng.choice(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])
    return f"(?:{_random_pattern(rng, depth - 1)}){operator}"


def test_random_patterns_match_what_re_matches() -> None:
    rng = random.Random(5)
    texts = ["".join(rng.choices("ab1\n é", k=length)) for length in range(7) for _ in range(4)]
    matched = 0
    for _ in range(200):
        pattern = _random_pattern(rng, 4)
        expected = re.compile(pattern, re.ASCII)
        for text in texts:
            found = matches(pattern, text)
            assert found is (expected.fullmatch(text) is not None), (pattern, text)
            matched += found
    assert matched > 300


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a*)*b", "a" * 2_000),
        ("(a|aa)+" * 10 + "c", "a" * 2_000),
        (".*" * 50 + "x", "ab" * 1_000),
        ("(?:a?){30}a{30}", "a" * 29),
    ],
)
def test_patterns_that_would_never_end_elsewhere(pattern: str, text: str) -> None:
    assert not matches(pattern, text)


def test_long_matches_pause_on_the_way() -> None:
    """No more than some thousand places are looked at in between, whatever the pattern."""
    rng = random.Random(1)
    text = "".join(rng.choices("ab", k=400))
    is_match, pauses = run("(a|b)*a(a|b){300}", text)
    assert is_match is (text[-301] == "a")
    assert pauses > 100
    assert run("app-.*", "app-1")[1] == 0


def test_what_is_kept_of_earlier_matches_is_bounded() -> None:
    """Whatever texts come: sets of places are as large as the pattern."""
    pattern = Pattern("(a|b)*a(a|b){100}")
    rng = random.Random(1)
    forgot = False
    for _ in range(3):
        before = len(pattern._steps)
        list(pattern.match("".join(rng.choices("ab", k=300))))
        forgot |= len(pattern._steps) < before
        assert sum(len(places) for places in pattern._steps.values()) <= 20_000
    assert forgot
