"""What is worth a person's attention: alerts as data, and when each begins and is over."""
