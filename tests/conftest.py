"""What every test can ask for: a database, a broker, and a line in the closing table."""

pytest_plugins = [
    "tests.plugins.report",
    "tests.plugins.conformance",
    "tests.plugins.waiting_tasks",
    "tests.plugins.rabbitmq",
    "tests.plugins.database",
    "tests.plugins.places",
    "tests.plugins.rounds",
    "tests.plugins.simulated",
]
