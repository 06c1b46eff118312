"""A producer's transactions: what programs see, their course, what coordinators are asked."""
