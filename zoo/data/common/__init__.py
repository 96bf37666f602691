"""What the data modules of all tasks share."""
