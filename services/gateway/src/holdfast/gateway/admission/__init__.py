"""Back-pressure: which requests are let in, held back or refused."""
