"""The clients for asyncio: they run on a Trio loop in a thread of its own."""
