"""dflockd's protocol: three lines a request, one line an answer, over TCP."""
