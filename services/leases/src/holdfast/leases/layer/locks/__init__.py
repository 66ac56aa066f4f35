"""FIFO locks, semaphores, signals and small values in the memory of one process."""
