"""What the members of a consumer group subscribe to: topics by name, and regular expressions.

A regular expression counts for the topics that it was last found to match (`resolved`); that is a
record of its own, which goes with the last member that subscribes to the expression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kraftrio.broker.coordinator.groups.consumer.state.member import ConsumerMember


class ResolvedRegex(NamedTuple):
    """What a regular expression matched.

    Attributes:
        version: of the metadata that was searched: its offset.
        timestamp_ms: when the search began.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscriptions:
    """Counts of members by what they subscribe to.

    Attributes:
        by_name: how many members name each topic.
        by_regex: how many regular expressions match each topic.
        regexes: how many members subscribe to each regular expression.
        resolved: what the regular expressions match, as far as that is known.
    """

    __slots__ = ("by_name", "by_regex", "regexes", "resolved")

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.by_regex: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.resolved: dict[str, ResolvedRegex] = {}

    def copy(self) -> Subscriptions:
        """Return a copy, to see what a change leads to."""
        copied = Subscriptions()
        copied.by_name = self.by_name.copy()
        copied.by_regex = self.by_regex.copy()
        copied.regexes = self.regexes.copy()
        copied.resolved = dict(self.resolved)
        return copied

    # --- look-ups ---

    def topics(self) -> Iterable[str]:
        """The topics that anyone subscribes to."""
        if not self.by_regex:
            return self.by_name.keys()
        return self.by_name.keys() | self.by_regex.keys()

    def has_topic(self, name: str) -> bool:
        """Whether anyone subscribes to a topic."""
        return name in self.by_name or name in self.by_regex

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member subscribes to."""
        names = member.subscribed_topic_names
        resolved = self.resolved.get(member.subscribed_topic_regex or "")
        return names if resolved is None else names | resolved.topics

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether that many members all subscribe to the same topics, as far as counts show."""
        if not self.regexes:
            return all(count == member_count for count in self.by_name.values())
        first_count = next(iter(self.regexes.values()))
        return (
            first_count == member_count
            and not self.by_name
            and all(count == 1 for count in self.by_regex.values())
        )

    # --- changes ---

    def replace(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        """Count a member in another's place; either may be absent."""
        if (
            former is not None
            and member is not None
            and former.subscribed_topic_names is member.subscribed_topic_names
            and former.subscribed_topic_regex == member.subscribed_topic_regex
        ):
            return
        if former is not None:
            _subtract(self.by_name, former.subscribed_topic_names)
            if former.subscribed_topic_regex:
                _subtract(self.regexes, (former.subscribed_topic_regex,))
        if member is not None:
            self.by_name.update(member.subscribed_topic_names)
            if member.subscribed_topic_regex:
                self.regexes[member.subscribed_topic_regex] += 1

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set (or with None drop) what a regular expression matches."""
        former = self.resolved.pop(regex, None)
        if former is not None:
            _subtract(self.by_regex, former.topics)
        if resolved is not None:
            self.resolved[regex] = resolved
            self.by_regex.update(resolved.topics)

    def drop_unused(self) -> list[str]:
        """Drop what regular expressions match that nobody subscribes to any more; return those."""
        unused = [regex for regex in self.resolved if regex not in self.regexes]
        for regex in unused:
            self.resolve(regex, None)
        return unused


def _subtract(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
