"""What keeps an installation sound over time: checks, repairs and cleaning."""
