"""Screens: triage, one whole source, search, export, help, a one-line prompt."""
