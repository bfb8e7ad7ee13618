"""Who is at the other end of a session, what they may do, and how much: authentication, authorization, the
audit log and quotas.

Knows the published users, access rules and quotas; must not know what a request does. Read `authorization`
first: every handler asks it. `session_authentication` has the state of one login.
"""
