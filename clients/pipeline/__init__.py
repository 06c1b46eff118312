"""The data pipeline on Spark: New York's flights of 2013 in, their delays by the hour out.

`scripts/pipeline` (or `python -m kraftrio.clients.pipeline`) is its command line. Nothing else
imports this package: it needs the extra `kraftrio[pipeline]`.
"""
