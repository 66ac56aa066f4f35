"""Queues: messages in, deliveries out, without an end if wished."""
