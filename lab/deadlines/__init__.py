"""Policies that schedule deadlines elsewhere, and a reducer that they are tried on."""
