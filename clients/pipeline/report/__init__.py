"""The report of the flights pipeline: figures, charts, one HTML page."""
