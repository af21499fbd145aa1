"""What people look at: tables, figures, pages of one campaign and of several side by side.

May import `results`, `store` and `stats`; trains nothing.
"""
