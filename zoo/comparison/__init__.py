"""`zoo compare`: all attention mechanisms under one budget."""
