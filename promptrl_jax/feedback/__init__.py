"""What people say about answers: events, their store, and what they are worth.

    shown answer ──> store <── events (rating, preference, correction, signal)
                       │
                       └──> aggregate ──> one score in [0, 1] per answer

`events` holds the structs, `scales` says what a raw value means, `store` keeps
both in one SQLite file, `aggregate` makes scores of them, and `collector` waits
for them in a training loop. These run on the standard library alone. `web` is
the page on which people rate, and `gradio_app` one that is made with Gradio.
"""
