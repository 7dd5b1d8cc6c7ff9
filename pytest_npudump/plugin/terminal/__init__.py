"""What the plugin prints in a session: failures within a budget, notes, and the line at the end."""
