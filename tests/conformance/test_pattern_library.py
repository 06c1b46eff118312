"""Patterns of clients mean what they mean to Apache Kafka's broker, which asks RE2/J."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from kraftrio.base.patterns.pattern import Pattern
from kraftrio.base.patterns.scripts import _TABLE
from kraftrio.base.patterns.syntax import PatternError
from tests.conformance.java_programs import run_program, waits_for_java
from tests.unit.base.patterns.pattern_cases import MATCHES, REFUSED, matches

PROGRAM = Path(__file__).with_name("PatternJudge.java")
pytestmark = waits_for_java
# What random patterns are made of: whole parts, and single characters that make bad ones, too.
PARTS = (
    *("a", "b", "K", "s", "é", ".", "-", "_", "0", r"\w", r"\W", r"\d", r"\s", r"\S", r"\b", r"\B"),
    *("[ab]", "[^a]", "[[:alpha:]-]", "[[:^upper:]0]", "[a-f_-]", r"[\w.]", r"[^\d]", "[]a]"),
    *(r"\pL", r"\p{Lu}", r"\P{Greek}", r"\p{Latin}", r"\p{^N}", r"\x41", r"\x{e9}", r"\101"),
    *(r"\Qa.b\E", "(?i)", "(?i:k)", "(?s).", "(?m)^", "$", "^", "(?P<n>a)", "(?:b|)", "(a|b)", "|"),
    *("*", "+", "?", "??", "{2}", "{1,}", "{0,2}", "{01}", "{,3}", "{1001}"),
    *("(", ")", "[", "]", "{", "}", "\\", "(?", "(?-", "[:x:]", r"\p{Nope}", r"\1", r"\C", "[z-a]"),
)
LETTERS = "abkKſK sS0._-éÉ1α\n"


def judge(questions: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Return RE2/J's answers."""
    lines = (
        ",".join(base64.b64encode(each.encode()).decode() for each in (pattern, *texts))
        for pattern, texts in questions
    )
    return run_program(PROGRAM, given=lines)


def ours(pattern: str, texts: list[str]) -> str:
    """Return our answer in the form of RE2/J's."""
    try:
        Pattern(pattern)
    except PatternError as error:
        return f"!{error}"
    return "".join(str(int(matches(pattern, text))) for text in texts)


def test_cases_of_the_unit_tests() -> None:
    """What they expect of a pattern is what RE2/J says."""
    answers = judge((pattern, texts + others) for pattern, texts, others in MATCHES)
    assert answers == ["1" * len(texts) + "0" * len(others) for _, texts, others in MATCHES]
    refused = [(pattern, reason) for pattern, reason in REFUSED if "the pattern" not in reason]
    assert judge((pattern, []) for pattern, _ in refused) == [f"!{reason}" for _, reason in refused]


@pytest.mark.parametrize("length", [2, 4, 8])
def test_random_patterns(length: int) -> None:
    """Good ones match the same texts; bad ones are refused with the same words."""
    seed = random.SystemRandom().randrange(1 << 31)
    rng = random.Random(seed)
    texts = ["".join(rng.choices(LETTERS, k=rng.randrange(6))) for _ in range(20)]
    patterns = ["".join(rng.choices(PARTS, k=rng.randint(1, length))) for _ in range(3000)]
    answers = judge((pattern, texts) for pattern in patterns)
    for pattern, answer in zip(patterns, answers, strict=True):
        assert ours(pattern, texts) == answer, (seed, pattern, texts)
    assert sum(answer.startswith("!") for answer in answers) > 200
    assert sum("1" in answer for answer in answers if not answer.startswith("!")) > 50


def test_scripts() -> None:
    """Every script, at the ends of its ranges."""
    questions = []
    for line in _TABLE.replace("\n ", " ").splitlines():
        name, *ranges = line.split()
        ends = {int(end, 16) for each in ranges for end in each.split("-")}
        near = sorted({code + step for code in ends for step in (-1, 0, 1)})
        texts = [chr(code) for code in near if 0 <= code < 0xD800 or 0xE000 <= code < 0x110000]
        questions.append((f"\\p{{{name}}}", texts))
    for (pattern, texts), answer in zip(questions, judge(questions), strict=True):
        assert ours(pattern, texts) == answer, pattern
