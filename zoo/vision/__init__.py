"""Images, and the networks that turn them into features."""
