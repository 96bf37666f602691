"""From raw texts and images to results: the verbs of all models, whichever engine computes. Nothing needs torch."""
