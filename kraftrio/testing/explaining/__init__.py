"""Why a record is not visible, was read twice, or went to its partition: from a run's trace."""
