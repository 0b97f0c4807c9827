"""Operation of Sluice itself: backups, read-only mode, and the state of its processes, queues and database."""
