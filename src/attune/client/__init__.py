"""A typed client of Attune's REST API, the same calls for synchronous and asynchronous programs.

from attune.client import AttuneClient, calls

with AttuneClient("http://127.0.0.1:8080", token) as attune:
    execution = attune.send(calls.request_execution("core.echo", {"message": "hi"}, wait_seconds=30)).value
"""

from attune.client import calls
from attune.client.answers import Answer
from attune.client.connections import AsyncAttuneClient, AttuneClient
from attune.client.errors import ClientError, NoAnswer, ProblemField, Refused, TimedOut, Unreachable
from attune.client.models import Action, Admission, Execution, Explanation, Line, LogLine, Pack, Page, Token, Worker

__all__ = [
    "Action",
    "Admission",
    "Answer",
    "AsyncAttuneClient",
    "AttuneClient",
    "ClientError",
    "Execution",
    "Explanation",
    "Line",
    "LogLine",
    "NoAnswer",
    "Pack",
    "Page",
    "ProblemField",
    "Refused",
    "TimedOut",
    "Token",
    "Unreachable",
    "Worker",
    "calls",
]
