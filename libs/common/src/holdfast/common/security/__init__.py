"""Who calls, and what proves it: certificates, bundles, internal signatures."""
