"""Dramatiq on RabbitMQ, with its own defaults: messages are not confirmed to the producer, results are not kept."""

import os

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from effects import ACTIONS, asked, begin, is_producer, note

dramatiq.set_broker(RabbitmqBroker(url=os.environ["PEER_URL"]))


def noop(number):
    note(number)


ACTORS = [dramatiq.actor(noop, actor_name=f"noop_{number}") for number in range(ACTIONS)]

if __name__ == "__main__" and is_producer():
    numbers, actions, _ = asked()
    begin()
    for each in numbers:
        ACTORS[each % actions].send(each)
