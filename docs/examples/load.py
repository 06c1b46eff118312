"""Load the lines of a CSV file into a topic, as JSON, as fast as possible.

python load.py FILE TOPIC KEY_COLUMN [HOST:PORT]
"""

import csv
import sys
from collections.abc import Iterator

import trio

from kraftrio import Producer, json_serializer


def rows(path: str) -> Iterator[dict[str, str]]:
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


async def main(path: str, topic: str, key_column: str, servers: str = "localhost:9092") -> None:
    count = 0
    async with Producer(
        servers, value_serializer=json_serializer, compression_type="zstd", linger_ms=50
    ) as producer:
        for row in rows(path):
            # Not awaited here: records go out in batches while the next lines are read.
            await producer.send(topic, row, key=row[key_column].encode())
            count += 1
        await producer.flush()
    print(f"{count} rows are in {topic}")


trio.run(main, *sys.argv[1:])
