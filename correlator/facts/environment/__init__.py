"""What a node gives to all programs on it, and what several users' failures there show about it."""
