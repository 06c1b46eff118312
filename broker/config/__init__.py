"""Settings: their tables and types, what is in force, what DescribeConfigs says."""
