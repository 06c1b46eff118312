"""What each page of the console shows, and the little that some of them change."""
