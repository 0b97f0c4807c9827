"""The deployment document: its field tables, reader, checks and export, and the `Deployment` that every model takes."""
