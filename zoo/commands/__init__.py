"""The commands of `zoo`, one file each."""
