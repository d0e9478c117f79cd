"""What must be true of messages, and of the partitions that everything recorded goes to."""

from collections.abc import Sequence

from attune.storage.upkeep.claims.invariant import Invariant

MESSAGES: Sequence[Invariant] = (
    Invariant(
        name="outbox_moves",
        claim="No message that is due waits longer than a minute for its consumer; a worker's own have their TTL.",
        statement="""
            SELECT id, topic, type, deliveries, not_before::text AS not_before FROM outbox
             WHERE not_before < now() - interval '60 seconds'
               AND topic NOT LIKE 'execution.dispatch.%' AND topic NOT LIKE 'execution.cancel.%'
        """,
    ),
    Invariant(
        name="messages_tell_what_happened",
        claim="A message about an execution names one that exists, and an attempt that it has reached.",
        statement="""
            SELECT o.id, o.topic, o.type, (i.item ->> 0)::bigint AS execution_id, (i.item ->> 1)::int AS told_attempt,
                   e.attempt
              FROM outbox o
             CROSS JOIN LATERAL jsonb_array_elements(o.items) i (item)
              LEFT JOIN execution e ON e.id = (i.item ->> 0)::bigint
             WHERE o.type IN ('execution.requested', 'execution.completed', 'execution.dispatched',
                              'execution.cancel.requested')
               AND (e.id IS NULL OR e.attempt < (i.item ->> 1)::int)
        """,
    ),
)

PARTITIONS: Sequence[Invariant] = (
    Invariant(
        name="default_partitions_empty",
        claim="Every row found the partition of its day.",
        statement="""
            SELECT 'execution_history' AS "table", count(*) AS rows FROM execution_history_default HAVING count(*) > 0
            UNION ALL
            SELECT 'execution_log', count(*) FROM execution_log_default HAVING count(*) > 0
            UNION ALL
            SELECT 'admission_log', count(*) FROM admission_log_default HAVING count(*) > 0
            UNION ALL
            SELECT 'audit_log', count(*) FROM audit_log_default HAVING count(*) > 0
        """,
    ),
)
