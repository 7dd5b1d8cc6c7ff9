"""Text for people and machines, made from results at the edge."""
