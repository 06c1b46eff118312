"""Record batches: their headers, the records in them, compression, and older formats."""
