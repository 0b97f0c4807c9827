"""The source agent: collects on a monitored server, runs the first operators near the data, sends the rest on."""
