"""Copy the records of a topic to another, perhaps of another cluster: keys, headers, timestamps.

python copy_topic.py FROM TO [HOST:PORT [HOST:PORT]]
"""

import sys

import trio

from kraftrio import Consumer, Producer, TopicPartition


async def main(
    source: str, target: str, servers: str = "localhost:9092", other_servers: str = ""
) -> None:
    copied = 0
    async with Consumer(servers) as consumer, Producer(other_servers or servers) as producer:
        tps = [
            TopicPartition(source, each.partition) for each in await consumer.partitions_for(source)
        ]
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = await consumer.offsets.end(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for record in await consumer.poll():
                await producer.send(
                    target,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    timestamp_ms=record.timestamp,
                )
                copied += 1
        await producer.flush()
    print(f"{copied} records are in {target}")


trio.run(main, *sys.argv[1:])
