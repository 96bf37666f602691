"""`zoo rebuild`: makes a weight again, stage by stage, as its recipe lists them."""
