"""ISRs of what is led here: late followers, refused proposals, retries."""

from __future__ import annotations

import trio

from kraftrio.wire.errors import ErrorCode
from tests.support.logged import logged
from tests.unit.broker.replica.replica_context import LAG_MS, TOPIC_ID, TP, Broker, change


async def test_late_followers_are_put_out_of_the_isr(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        end = broker.append()
        broker.fetched(3, end)
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, end, None, codes.append)
        await trio.sleep(2 * LAG_MS / 1000)
        [proposal] = broker.proposed
        assert (proposal.topic_partition, proposal.topic_id) == (TP, TOPIC_ID)
        assert [tuple(member) for member in proposal.isr] == [(1, 10), (3, 30)]
        assert not codes
        proposal.take()
        assert codes == [ErrorCode.NONE]


async def test_a_proposal_that_is_refused_over_and_over_is_logged_once(
    autojump_clock: object,
) -> None:
    """What is proposed and that it is not taken: a line each, not a hundred."""
    broker = Broker()
    with logged() as log:
        async with broker.running():
            broker.lead(isr=(1, 2))
            broker.fetched(3, 0)
            for round_number in range(100):
                broker.proposed[round_number].refuse(ErrorCode.REQUEST_TIMED_OUT)
                await trio.sleep(1)
    assert log.getvalue().count("propose isr") == 1
    assert log.getvalue().count("isr proposal refused") == 1
    assert log.getvalue().count("\n") == 2


async def test_proposals_are_sent_again_after_trouble(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1, 2))
        broker.fetched(3, 0)
        broker.proposed[0].refuse(ErrorCode.REQUEST_TIMED_OUT)
        assert len(broker.proposed) == 1
        await trio.sleep(1)
        assert len(broker.proposed) == 2 and broker.proposed[1].isr == broker.proposed[0].isr
        broker.proposed[1].refuse(ErrorCode.REQUEST_TIMED_OUT)
        broker.publish(change(isr=(1, 2, 3)))
        await trio.sleep(1)
        assert len(broker.proposed) == 2
