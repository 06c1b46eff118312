"""Print the records that are in a topic and those that come, until Ctrl-C.

python tail.py TOPIC [HOST:PORT]
"""

import sys

import trio

from kraftrio import Consumer, TopicPartition


async def main(topic: str, servers: str = "localhost:9092") -> None:
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        partitions = await consumer.partitions_for(topic)
        consumer.assign([TopicPartition(topic, each.partition) for each in partitions])
        async for record in consumer:
            key = (record.key or b"").decode()
            value = (record.value or b"").decode()
            print(f"{record.partition} {record.offset} {key} {value}", flush=True)


trio.run(main, *sys.argv[1:])
