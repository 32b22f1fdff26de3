"""Studies with prudent: the paper's tables and figures, and comparisons, as commands of its command line."""
