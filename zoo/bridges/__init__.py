"""What tools of others need of our models: captum (attribution) and bertviz (heads of a Transformer)."""
