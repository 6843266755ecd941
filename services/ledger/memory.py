"""How Python's collector of cycles behaves in a process that answers from the books."""

import gc

NEW_OBJECTS = 100_000
"""Between two looks at new objects. An answer is made of hundreds of thousands of rows, none of which is in a cycle: at the interpreter's 700 the
looks take as long as the answer."""
LOOKS = 50
"""Of one generation between two of the next."""


def look_less() -> None:
    """Called once, when the process has imported what it needs: that is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, LOOKS, LOOKS)
