"""The clients for asyncio: names, settings and calls of `kraftrio`'s own, which are for Trio.

    from kraftrio.asyncio import Consumer, Producer

They run on a Trio loop in a thread of its own, which the first one that is opened starts and the
last one that is closed ends. Records are handed over by the batch. What else there is (`NewTopic`,
`TopicPartition`, errors) is in `kraftrio` and `kraftrio.errors`.
"""

from kraftrio.clients.aio.admin import Admin
from kraftrio.clients.aio.consumer import Consumer
from kraftrio.clients.aio.producer import Delivery, Producer, Transaction
from kraftrio.clients.aio.share import ShareConsumer

__all__ = ["Admin", "Consumer", "Delivery", "Producer", "ShareConsumer", "Transaction"]
