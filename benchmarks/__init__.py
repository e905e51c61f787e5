"""How fast tfcaps is, how much memory it takes, and beside what."""
