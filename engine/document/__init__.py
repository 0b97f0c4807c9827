"""The deployment document: its elements, reader, checks and export, and the `Deployment` that every model takes."""
