"""RabbitMQ as the transport: the outbox remembers, the broker distributes. The only package that speaks AMQP."""

from attune.transport.rabbitmq.inspection import inspect_broker
from attune.transport.rabbitmq.options import RabbitOptions, ReturnedDispatch
from attune.transport.rabbitmq.transport import RabbitTransport

__all__ = ["RabbitOptions", "RabbitTransport", "ReturnedDispatch", "inspect_broker"]
