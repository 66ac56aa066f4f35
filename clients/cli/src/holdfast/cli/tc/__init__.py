"""`holdfast tc`: the nodes that decide transactions together."""
