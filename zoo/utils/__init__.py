"""What every room of the house uses; imports nothing of ours."""
