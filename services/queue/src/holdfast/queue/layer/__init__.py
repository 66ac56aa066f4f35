"""The layer of queues: messages, dispatch and deliveries, without HTTP."""
