"""Operations on a cluster, for every tool: lag, resets, rates, access rules, inert text.

The command line and the console both ask a cluster through `sparklog.client` and decide here what the answers
mean; neither knows the other. This room prints nothing, parses no option, and knows neither click nor a web
server: a value that a person typed and that does not fit raises `refused.OperationRefused`, which each tool
turns into its own error. Read `lag.py` first.
"""
