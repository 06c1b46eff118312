"""Print how far each group is behind, the farthest first.

python lags.py [HOST:PORT]
"""

import sys

import trio

from kraftrio import Admin


async def main(servers: str = "localhost:9092") -> None:
    async with Admin(servers) as admin:
        found = []
        for group in await admin.list_groups(types=["classic", "consumer"]):
            lags = await admin.consumer_group_lag(group.group_id)
            found.append((sum(lag.lag or 0 for lag in lags.values()), group.group_id))
    for lag, group_id in sorted(found, reverse=True):
        print(f"{lag:8} {group_id}")


trio.run(main, *sys.argv[1:])
