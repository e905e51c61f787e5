"""The rows of each table, a file for a table."""
