"""What comes and goes, by topic, while partitions of it are hosted."""

from __future__ import annotations

from kraftrio.broker.replica.traffic import Traffics, log_statistics
from tests.unit.broker.replica.replica_context import TP, Broker


async def test_what_is_appended_is_counted() -> None:
    broker = Broker()
    broker.lead(isr=(1,))
    end = broker.append()
    traffic = broker.replicas.traffics.labelled_statistics()
    assert traffic["records_in_total"] == {(TP.topic,): end}
    sizes = log_statistics(broker.replicas.hosted.partitions(), 10)
    assert sizes["log_end_offset"] == {(TP.topic, str(TP.partition)): end}
    assert list(sizes["size_bytes"].values()) == list(traffic["bytes_in_total"].values())


def test_a_topic_is_shown_as_long_as_a_partition_is_here() -> None:
    traffics = Traffics()
    first, second = traffics.enter("t"), traffics.enter("t")
    assert first is second
    first.bytes_in += 5
    traffics.leave("t")
    assert traffics.labelled_statistics()["bytes_in_total"] == {("t",): 5}
    traffics.leave("t")
    assert traffics.labelled_statistics()["bytes_in_total"] == {}
    assert traffics.enter("t").bytes_in == 0


async def test_so_many_logs_are_shown_at_most() -> None:
    broker = Broker()
    broker.lead(isr=(1,))
    broker.append()
    assert log_statistics(broker.replicas.hosted.partitions(), 0)["size_bytes"] == {}
