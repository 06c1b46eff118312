"""Patterns matched in linear time: against `re` where both know them, and against hostile ones."""

from __future__ import annotations

import random
import re

import pytest

from kraftrio.base.patterns.pattern import Pattern
from kraftrio.base.patterns.syntax import PatternError


def matches(pattern: str, text: str) -> bool:
    return run(pattern, text)[0]


def run(pattern: str, text: str) -> tuple[bool, int]:
    """Whether it matches, and how often it paused."""
    work = Pattern(pattern).match(text)
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize(
    ("pattern", "texts", "others"),
    [
        ("", [""], ["a"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("app-.*", ["app-", "app-1"], ["xapp-1", "app"]),  # the whole text, not a part
        (r"app-\d{2,3}", ["app-12", "app-123"], ["app-1", "app-1234", "app-x1"]),
        ("a{2,}b{2}c{0}", ["aabb", "aaaabb"], ["abb", "aabbb", "aabbc"]),
        ("a{,2}", ["a{,2}"], ["", "a"]),  # braces that hold no counts
        ("(?i)streams-(?-i:APP)", ["Streams-APP", "STREAMS-APP"], ["streams-app"]),
        ("(?i)[a-c]É", ["Bé", "cÉ"], ["d"]),
        ("a.b", ["a b", "axb"], ["a\nb"]),
        ("(?s)a.b", ["a\nb"], ["ab"]),
        ("(?m)^a$\n^b$", ["a\nb"], ["a\n\nb"]),
        ("^a$|^$", ["a", ""], ["\na"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r".*\bb\b.*", ["a b c", "b"], ["abc", "bb"]),
        (r"a\Bb", ["ab"], ["a b"]),
        ("[]a-]+", ["]a-"], ["b"]),
        ("[^]a]+", ["bc"], ["]", "a"]),
        (r"[\d_[:upper:]\-\]]+", ["1_A-]"], ["a"]),
        (r"[[:^alpha:]]\p{Lu}\pN\P{L}", ["1É٣!"], ["aÉ٣!", "1é٣!"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb*"]),
        (r"\x41\x{e9}\n\101\0\.", ["Aé\nA\0."], ["Ae\nA\0."]),
        ("(?P<one>a)(?<two>b)+?", ["ab", "abb"], ["a"]),
        ("(?:a|b)*c", ["c", "ababc"], ["ab"]),
        ("((a*)*)*", ["", "aaa"], ["b"]),
        ("(){3}(|x){2}", ["", "x", "xx"], ["xxx"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, texts: list[str], others: list[str]) -> None:
    assert [text for text in texts if not matches(pattern, text)] == []
    assert [text for text in others if matches(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing \\)"),
        ("a)", "unexpected"),
        ("(?i", "too early"),
        ("[a", "too early"),
        ("[]", "too early"),
        ("[z-a]", "bad range"),
        (r"[a-\d]", "bad range"),
        ("[[:nope:]]", "unknown class"),
        ("[[:alpha]", "missing"),
        ("*a", "nothing to repeat"),
        ("(|+a)", "nothing to repeat"),
        ("a**", "repetition of a repetition"),
        ("a*{2}", "repetition of a repetition"),
        ("a++", "repetition of a repetition"),  # possessive, elsewhere
        ("a{1001}", "more than 1000"),
        ("a{3,2}", "from 3 to 2"),
        (r"(a)\1", "unknown escape"),  # references back cannot be matched in linear time
        ("(?=a)", "unknown kind of group"),
        ("(?<=a)", "unknown kind of group"),
        ("(?<!a)", "unknown kind of group"),
        ("(?P<a>x)(?P<a>y)", "bad name"),
        ("(?P<>x)", "bad name"),
        (r"\p{Klingon}", "unknown class"),
        (r"\q", "unknown escape"),
        (r"\x{110000}", "no character"),
        (r"\xg1", "no character"),
        ("a\\", "too early"),
        ("(" * 3_000, "too deeply"),
        ("a" * 5_000, "too long"),
        ("[" + "ab" * 300 + "]{9}", "too large"),  # each place would look at 600 characters
        ("(a{1000}){1000}", "too large"),
        ("a" * 3_000, "too large"),
        ("((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}", "too large"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        Pattern(pattern)


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
