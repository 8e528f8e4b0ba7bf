"""A child that kills itself as one of its functions is called for the nth time."""

from __future__ import annotations

#: Text of such a child. Before it stands what names ``real``, the function, ``calls``, ``when`` it dies and whether ``after`` it.
KILLING = """
def killing(*args, **more):
    calls.append(1)
    if len(calls) == when and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    found = real(*args, **more)
    if len(calls) == when:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
"""
