"""The command line: `main` is the program, each family of commands has its file.

A command answers in less than 150 ms, so each file imports only click at its top; a command imports its
modules when it runs: listing topics must not load the server, nor printing JSON the tables. Data goes to
stdout, everything else to stderr.
"""
