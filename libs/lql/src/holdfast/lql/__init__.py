"""LQL: the language that selects documents and changes them. Pure: no I/O, no clock, text and values in and out."""
