"""Copy what is in a topic to another one, of another cluster maybe: keys, headers, timestamps.

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
        places = [
            TopicPartition(source, each.partition) for each in await consumer.partitions_for(source)
        ]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
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
