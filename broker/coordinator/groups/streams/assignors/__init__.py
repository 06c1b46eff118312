"""Task assignors: which member of a streams group runs which tasks."""
