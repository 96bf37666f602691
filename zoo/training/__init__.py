"""`zoo fit`, `validate` and `test`: Lightning's command line with exact checkpoints, and callbacks for recipes."""
