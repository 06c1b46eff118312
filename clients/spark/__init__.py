"""Topics and log directories as PySpark data sources."""
