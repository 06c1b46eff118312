"""Who is in sync: watched by the leader, proposed to the controller."""
