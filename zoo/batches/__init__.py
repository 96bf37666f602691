"""What data modules give and models take, one file a task."""
