"""Widgets drawn line by line: only the rows in view are ever made."""
