"""What is believed of an answer, and how answers are numbered."""

MAX_COUNT = 10**13
"""A million operations a second for four months: no communicator has launched more (chosen by us)."""
OF_FILE = 1000
"""Answers between which time is known to have passed are numbered so far apart: those of files that follow one another,
and those of a text with another time of day, or a `sleep`, in front of each."""
