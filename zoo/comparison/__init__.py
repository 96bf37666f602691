"""`zoo compare`: all attention mechanisms with the same budget."""
