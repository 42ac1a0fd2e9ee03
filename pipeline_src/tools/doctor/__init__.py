"""Whether this machine can run the study, and what to do where it cannot; the standard library is enough for it."""
