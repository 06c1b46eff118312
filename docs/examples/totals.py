"""Keep totals per key, exactly once: read amounts as JSON, write each new total.

The totals so far are in the topic that they are written to, so a restart goes on with them.

python totals.py FROM TO [HOST:PORT]
"""

import sys

import trio

from kraftrio import Consumer, Producer, TopicPartition, json_deserializer, json_serializer


async def read_totals(topic: str, servers: str) -> dict[bytes, int]:
    """Return the newest total of each key."""
    totals: dict[bytes, int] = {}
    async with Consumer(
        servers, isolation_level="read_committed", value_deserializer=json_deserializer
    ) as consumer:
        tps = [
            TopicPartition(topic, each.partition) for each in await consumer.partitions_for(topic)
        ]
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = await consumer.offsets.end(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for record in await consumer.poll():
                totals[record.key or b""] = record.value
    return totals


async def main(source: str, target: str, servers: str = "localhost:9092") -> None:
    totals = await read_totals(target, servers)
    async with (
        Consumer(
            servers,
            group_id=f"totals-of-{source}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            value_deserializer=json_deserializer,
        ) as consumer,
        Producer(
            servers, transactional_id=f"totals-of-{source}", value_serializer=json_serializer
        ) as producer,
    ):
        await consumer.subscribe(source)
        while records := await consumer.poll():
            async with producer.transaction() as transaction:
                for record in records:
                    key = record.key or b""
                    totals[key] = totals.get(key, 0) + int(record.value["amount"])
                    await producer.send(target, totals[key], key=key)
                await transaction.send_offsets(consumer)
            print({key.decode(): total for key, total in sorted(totals.items())}, flush=True)


trio.run(main, *sys.argv[1:])
