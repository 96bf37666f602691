"""What all models of a task share: base class, result, loss, scores, search and the verb for raw input."""
