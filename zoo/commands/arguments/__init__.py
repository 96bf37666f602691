"""The arguments of each verb of `zoo`, one file a verb: SUMMARY, EXAMPLE, `add(command)` and `run(options)`.

These files import nothing slow; `run` imports what does the work.
"""
