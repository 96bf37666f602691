"""What the verbs of the models answer: the text or label, and where the model looked."""
