"""Pictures and self-contained HTML pages, and the report of a match."""
