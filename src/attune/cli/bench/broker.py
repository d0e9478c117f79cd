"""Whether a RabbitMQ may be measured on: never one that another platform uses, whose messages we would take."""

from attune.cli.exits import CommandFailed, Exit


async def require_unused(url: str) -> None:
    """Refuse a virtual host where Attune's queues are consumed or hold messages."""
    try:
        from attune.transport.rabbitmq.inspection import inspect_broker
        from attune.transport.rabbitmq.options import RabbitOptions
    except ModuleNotFoundError as error:
        raise CommandFailed(f"{error}: install attune[rabbitmq]", exit_code=Exit.INVALID) from error
    from attune.transport.topology import EXECUTOR_QUEUES

    rows = await inspect_broker(RabbitOptions(url=url), EXECUTOR_QUEUES, repair=False)
    used = [row.queue for row in rows if row.messages or row.consumers]
    if used:
        message = (
            f"the queue {used[0]} is in use on that RabbitMQ: measuring would take another platform's messages. "
            "Make a virtual host for it and name that"
        )
        raise CommandFailed(message, exit_code=Exit.INVALID)
