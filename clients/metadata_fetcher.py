"""Keeps a client's metadata fresh: when it is fetched, from whom, of which topics.

Owns the metadata snapshot and the task that refreshes it. Rules:
1. Metadata is fetched when `metadata_max_age_ms` have passed, when it is asked for, and never more
   often than `retry_backoff_ms`, growing to `retry_backoff_max_ms` while nothing gets better; only
   a topic that is new to the client does not wait for that. Nothing is fetched before it is wanted.
2. It covers the topics of interest; all topics while `wants_all`.
3. It comes from the first broker that answers; if none of the known ones can be reached for
   `metadata_recovery_rebootstrap_trigger_ms`, or a broker says so, from the bootstrap servers
   (KIP-899, KIP-1102).
4. A broker that does not let the client in ends every wait at once (`give_up`): more attempts would
   end alike. They go on all the same, rarely, since a password may be changed meanwhile.

Called by: `cluster`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import trio

from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.config import ClientConfig
from kraftrio.clients.diagnostics.notices import Notices
from kraftrio.clients.errors import (
    AuthenticationError,
    ClosedError,
    KafkaClientError,
    TimedOutError,
    error_for,
    renewed,
)
from kraftrio.clients.metadata import ClusterMetadata
from kraftrio.clients.nodes import Nodes
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_REPORT_AFTER_S = 1.0


class TopicsOfInterest:
    """The topics that metadata is kept of: those pinned, and those used a short while ago.

    Args:
        idle_ms: how long a topic counts after it was used.
    """

    def __init__(self, idle_ms: float) -> None:
        self._idle_s = idle_ms / 1000
        self._used_at: dict[str, float] = {}
        self._pinned: frozenset[str] = frozenset()

    def pin(self, topics: Iterable[str]) -> frozenset[str]:
        """Keep these instead of any pinned before; return them."""
        self._pinned = frozenset(topics)
        return self._pinned

    def use(self, topic: str, now: float) -> bool:
        """Keep a topic for a while from now on; return whether it was not kept before."""
        is_new = topic not in self._used_at
        self._used_at[topic] = now
        return is_new

    def names(self, now: float) -> set[str]:
        """Return all of them; those that were not used for long are dropped."""
        oldest = now - self._idle_s
        self._used_at = {name: used for name, used in self._used_at.items() if used >= oldest}
        return {*self._used_at, *self._pinned}


class _Round:
    """A fetch that is waited for: repeated until it brings something, or is given up."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.refusal: KafkaClientError | None = None


class MetadataFetcher:
    """See the module.

    Args:
        on_change: called, synchronously, with each new snapshot in place.
        notices: where it reports that no broker answers, and topics that do not exist.
    """

    def __init__(
        self,
        nodes: Nodes,
        config: ClientConfig,
        rng: random.Random,
        topic_idle_ms: float,
        on_change: Callable[[], None],
        notices: Notices,
    ) -> None:
        self.metadata = ClusterMetadata()
        self.wants_all = False
        self.failure: KafkaClientError | None = None  # of the last fetch
        self._nodes = nodes
        self._config = config
        self._rng = rng
        self._topics = TopicsOfInterest(topic_idle_ms)
        self._on_change = on_change
        self._notices = notices
        self._missing_since: dict[str, float] = {}  # topics of interest that do not exist
        self._wanted = trio.Event()
        self._urgent = trio.Event()  # wanted without back-off
        self._next = _Round()  # the first fetch that begins from now on
        self._waited_for: list[_Round] = []  # those that have begun, and brought nothing yet
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._is_closed = False
        self._unchanged_count = 0  # fetches in a row that brought nothing new

    # -- what is wanted -------------------------------------------------------------------------

    def request(self) -> None:
        """Have metadata fetched soon."""
        self._wanted.set()

    def _request_urgently(self) -> None:
        """Have metadata fetched at once: of a topic that nothing is known about."""
        self._wanted.set()
        self._urgent.set()

    def pin_topics(self, topics: Iterable[str]) -> None:
        """Name the topics of interest, beside those in use."""
        if self._topics.pin(topics) - self.metadata.topics.keys():
            self._request_urgently()

    def use_topic(self, topic: str) -> None:
        """Keep metadata of a topic for a while from now on."""
        is_new = self._topics.use(topic, trio.current_time())
        if is_new and topic not in self.metadata.topics:
            self._request_urgently()

    async def refresh(self, timeout_s: float) -> None:
        """Fetch metadata now.

        Raises:
            AuthenticationError: a broker did not let the client in.
            ClosedError: the client was closed.
            TimedOutError: no broker answered in that time; says why the last one did not.
        """
        self.check_open()
        self._wanted.set()
        awaited = self._next
        with trio.move_on_after(max(timeout_s, 0)) as scope:  # the rest of a time that may be up
            await awaited.over.wait()
        if scope.cancelled_caught:
            raise self.unreachable(timeout_s)
        if awaited.refusal is not None:
            raise renewed(awaited.refusal)

    def check_open(self) -> None:
        """Raise ClosedError once the client is being closed."""
        if self._is_closed:
            raise ClosedError("the client was closed meanwhile")

    def close(self) -> None:
        """End every wait: the client is being closed, and fetches nothing more."""
        self._is_closed = True
        self.give_up(ClosedError("the client was closed meanwhile"))

    def give_up(self, refusal: KafkaClientError) -> None:
        """End every wait: a broker does not let the client in, or the client is closed."""
        self.failure = refusal
        for waiting in (*self._waited_for, self._next):
            waiting.refusal = refusal
            waiting.over.set()
        self._waited_for.clear()
        self._next = _Round()

    def unreachable(self, timeout_s: float) -> TimedOutError:
        """Return the error of a caller that has waited for an answer that long."""
        because = f": {self.failure}" if self.failure is not None else ""
        servers = self._bootstrap_servers
        return TimedOutError(f"no broker of {servers} answered within {timeout_s:g} s{because}")

    @property
    def _bootstrap_servers(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._nodes.bootstrap_addresses)

    # -- fetching -------------------------------------------------------------------------------

    def install(self, metadata: ClusterMetadata) -> None:
        """Take over a newer snapshot."""
        self.metadata = metadata
        self._nodes.update(metadata.brokers)
        self._on_change()

    async def run(self) -> None:
        """Fetch metadata whenever it is wanted or old; a failed round is repeated."""
        await self._wanted.wait()
        while True:
            self._wanted = trio.Event()
            self._urgent = trio.Event()
            self._waited_for.append(self._next)
            self._next = _Round()
            before = self.metadata
            is_answered = await self._fetch()
            self._report_unreachable_brokers(is_answered)
            if is_answered:
                for done in self._waited_for:
                    done.over.set()
                self._waited_for.clear()
            else:
                self._wanted.set()
                self._urgent = trio.Event()  # brokers that cannot be reached are not hurried
            self._unchanged_count = (
                0 if _is_progress(before, self.metadata) else self._unchanged_count + 1
            )
            backoff_ms = self._backoff.jittered(max(self._unchanged_count - 1, 0), self._rng)
            with trio.move_on_after(backoff_ms / 1000):
                await self._urgent.wait()
            with trio.move_on_after(self._report_missing_topics()):
                await self._wanted.wait()

    def _report_unreachable_brokers(self, is_answered: bool) -> None:
        if is_answered:
            self._notices.forget("brokers")
        elif not isinstance(self.failure, AuthenticationError):  # which the program gets
            self._notices.warn(
                "brokers",
                "no broker of %s can be reached: %s; see that one runs there, and that"
                " bootstrap_servers names it",
                self._bootstrap_servers,
                self.failure or "it knows of no brokers yet",
            )

    def _report_missing_topics(self) -> float:
        """Warn of topics that are still missing; return for how many seconds to rest.

        A topic that is being created is missing for a moment, and not reported.
        """
        now = trio.current_time()
        missing = {
            name: self._missing_since.get(name, now)
            for name in self._topics.names(now)
            if (topic := self.metadata.topics.get(name)) is not None
            and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        self._missing_since = missing
        rest_s = self._config.metadata_max_age_ms / 1000
        for name, since in missing.items():
            if now - since < _REPORT_AFTER_S:
                rest_s = min(rest_s, _REPORT_AFTER_S)
                continue
            self._notices.warn(
                ("topic", name),
                "topic %r does not exist: create it, or correct the name; what is sent to it or"
                " read from it waits for that",
                name,
            )
        return rest_s

    async def _fetch(self) -> bool:
        """Ask one broker after the other; True when one has answered."""
        started_at = trio.current_time()
        topics = None if self.wants_all else self._topics.names(started_at)
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )
        trigger_s = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        candidates = self._nodes.candidates()
        while candidates:
            node = candidates.pop(0)
            if (
                node.node_id >= 0
                and self._config.metadata_recovery_strategy == "rebootstrap"
                and trio.current_time() - started_at > trigger_s
            ):
                continue  # tried for long enough: on to the bootstrap servers
            try:
                response: MetadataResponse = await node.request(
                    request, self._config.request_timeout_ms / 1000
                )
            except KafkaClientError as error:
                self.failure = error
                continue
            if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self.failure = error_for(response.error_code)
                candidates = [other for other in candidates if other.node_id < 0]
                continue
            if not response.brokers:
                continue  # it has only begun to start
            self.failure = None
            self.install(self.metadata.updated(response, topics))
            self._nodes.close_idle_bootstrap()
            return True
        return False


def _is_progress(before: ClusterMetadata, after: ClusterMetadata) -> bool:
    """Whether a fetch brought anything new, or there is nothing left to be found out."""
    if before is after:
        return False
    complete = all(
        topic.error_code == ErrorCode.NONE
        and all(partition.leader_id >= 0 for partition in topic.partitions.values())
        for topic in after.topics.values()
    )
    return complete or before.topics != after.topics or before.brokers != after.brokers
