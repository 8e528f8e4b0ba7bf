"""The front door."""
def main() -> int: return 0
