"""Runs looked at from outside: all of a folder in one table, several beside each other."""
