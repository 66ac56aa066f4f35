"""Common: what every service needs before it has a domain: errors, ids, clock, settings, serving."""
