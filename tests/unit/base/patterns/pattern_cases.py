"""What patterns match, and which are none; compared with RE2/J's answers, too."""

from __future__ import annotations

from kraftrio.base.patterns.pattern import Pattern


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches all of a text."""
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


# A pattern, texts that it matches, texts that it does not match.
MATCHES: list[tuple[str, list[str], list[str]]] = [
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
    ("[[:alpha]", ["[", ":", "a"], ["b", "]"]),
    (r"(?i)\p{Lu}[[:^upper:]k]", ["a1", "Ak", "AK"], ["1a", "aB"]),
    (r"\p{Latin}\p{Greek}\P{Common}", ["aαa", "éΩя"], ["1αa", "aαa1", "aa1"]),
    (r"(?i)kS\W", ["K\u017f-", "\u212as-"], ["ks\u212a"]),
    (r"\é{02}a{01}", ["é{02}a{01}"], ["éé"]),
    ("(?i-s:A.)(?-i:b)(?)c", ["axbc"], ["ax", "axBc", "a\nbc"]),
    ("(?:a|b)*c", ["c", "ababc"], ["ab"]),
    ("((a*)*)*", ["", "aaa"], ["b"]),
    ("(){3}(|x){2}", ["", "x", "xx"], ["xxx"]),
]

# A pattern that is none, and the reason.
REFUSED = [
    ("(?", "invalid or unsupported Perl syntax"),
    ("(?-)", "invalid or unsupported Perl syntax"),
    ("(?i-:a)", "invalid or unsupported Perl syntax"),
    ("(?P<a", "invalid named capture"),
    ("[a-", "missing closing ]"),
    ("[[:x:]]", "invalid character class range"),
    (r"\p", "invalid character class range"),
    (r"\p{Greek", "invalid character class range"),
    (r"\C", "invalid escape sequence"),
    (r"\x{}", "invalid escape sequence"),
    ("a{*", "invalid nested repetition operator"),  # a brace cannot be repeated without escape
    ("(?i)*", "missing argument to repetition operator"),
    ("a|*", "missing argument to repetition operator"),
    ("(", "missing closing )"),
    ("a)", "regexp/syntax: internal error"),
    ("(?i", "invalid or unsupported Perl syntax"),
    ("[a", "missing closing ]"),
    ("[]", "missing closing ]"),
    ("[z-a]", "invalid character class range"),
    (r"[a-\d]", "invalid escape sequence"),
    ("[[:nope:]]", "invalid character class range"),
    ("*a", "missing argument to repetition operator"),
    ("(|+a)", "missing argument to repetition operator"),
    ("a**", "invalid nested repetition operator"),
    ("a*{2}", "invalid nested repetition operator"),
    ("a++", "invalid nested repetition operator"),  # possessive, elsewhere
    ("a{1001}", "invalid repeat count"),
    ("a{3,2}", "invalid repeat count"),
    (r"(a)\1", "invalid escape sequence"),  # references back cannot be matched in linear time
    ("(?=a)", "invalid or unsupported Perl syntax"),
    ("(?<=a)", "invalid named capture"),
    ("(?<!a)", "invalid named capture"),
    ("(?P<a>x)(?P<a>y)", "duplicate capture group name"),
    ("(?P<>x)", "invalid named capture"),
    (r"\p{Klingon}", "invalid character class range"),
    (r"\q", "invalid escape sequence"),
    (r"\x{110000}", "invalid escape sequence"),
    (r"\xg1", "invalid escape sequence"),
    ("a\\", "trailing backslash at end of expression"),
    ("(" * 3_000, "the pattern nests too deeply"),
    ("a" * 5_000, "the pattern is too long"),
    (
        "[" + "ab" * 300 + "]{9}",
        "the pattern is too large",
    ),  # each place would look at 600 characters
    ("(a{1000}){1000}", "the pattern is too large"),
    ("a" * 3_000, "the pattern is too large"),
    ("((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}", "the pattern is too large"),
]
