"""`zoo compare`: all attention mechanisms trained and compared by the same rules; command.py runs it."""
