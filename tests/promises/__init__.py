"""Every sentence of the pages and of `--help`, and the test that shows it."""
