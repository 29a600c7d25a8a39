"""The page on which people rate what is in a store.

    browser ──> security ──> app ──> routes ──> store
                (who may)   (HTTP)  (what)

`server` runs all of it in a thread of a training process. It needs the packages
of the extra `serve`, which are imported when an app or a server is made.
"""
