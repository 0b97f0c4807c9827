"""Readers of engines that run elsewhere: what they answer becomes places, jobs, statistics and arrivals."""
