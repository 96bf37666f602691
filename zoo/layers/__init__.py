"""Mathematics only: masks, scores, attention, recurrence, search. Everything here imports torch and nothing else."""
