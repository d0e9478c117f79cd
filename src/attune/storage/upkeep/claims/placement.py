"""What must be true of executions that wait for a worker or are on one."""

from collections.abc import Sequence

from attune.storage.upkeep.claims.invariant import Invariant

PLACEMENT: Sequence[Invariant] = (
    Invariant(
        name="assigned_has_assignment",
        claim="What is scheduled, running or canceling on a worker has its assignment, of the same attempt.",
        statement="""
            SELECT e.id AS execution_id, e.status, e.attempt, a.attempt AS assigned_attempt
              FROM execution e LEFT JOIN assignment a ON a.execution_id = e.id
             WHERE e.ended_at IS NULL AND e.status IN ('scheduled', 'running', 'canceling')
               AND e.runner NOT IN ('workflow', 'inquiry') AND a.attempt IS DISTINCT FROM e.attempt
        """,
    ),
    Invariant(
        name="assignment_has_execution",
        claim="An assignment belongs to an execution that is on a worker.",
        statement="""
            SELECT a.execution_id, e.status FROM assignment a LEFT JOIN execution e ON e.id = a.execution_id
             WHERE e.id IS NULL OR e.status NOT IN ('scheduled', 'running', 'canceling')
        """,
    ),
    Invariant(
        name="started_has_lease",
        claim="A started attempt has a lease, and only a started one does.",
        statement="""
            SELECT e.id AS execution_id, e.status FROM execution e JOIN assignment a ON a.execution_id = e.id
             WHERE (e.status = 'scheduled') <> (a.lease_until IS NULL)
        """,
    ),
    Invariant(
        name="scheduling_is_unplaced",
        claim="What waits for a worker stands in the list of those who wait, and nobody else does.",
        statement="""
            SELECT COALESCE(e.id, u.execution_id) AS execution_id, e.status
              FROM (SELECT id, status FROM execution WHERE ended_at IS NULL AND status = 'scheduling') e
              FULL JOIN unplaced u ON u.execution_id = e.id
             WHERE e.id IS NULL OR u.execution_id IS NULL
        """,
    ),
    Invariant(
        name="unplaced_or_assigned",
        claim="Nobody waits for a worker and has one.",
        statement="""
            SELECT u.execution_id, a.worker_id, a.attempt
              FROM unplaced u JOIN assignment a ON a.execution_id = u.execution_id
        """,
    ),
    Invariant(
        name="requested_moves",
        claim="What is due does not stay requested for more than two minutes.",
        statement="""
            SELECT id AS execution_id, COALESCE(not_before, created)::text AS due FROM execution
             WHERE ended_at IS NULL AND status = 'requested'
               AND COALESCE(not_before, created) < now() - interval '120 seconds'
        """,
    ),
)
