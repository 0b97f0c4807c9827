"""Placement algorithms to compare with: Mace-HC as published, and its competitors."""
