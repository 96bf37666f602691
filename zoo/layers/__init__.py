"""Mathematics only: masks, scores, attention, recurrence, search. Everything here imports only torch."""
