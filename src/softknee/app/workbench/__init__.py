"""The workbench: one page on which an activation function is bent with the mouse.

    static/     the page: HTML, CSS and plain JavaScript, nothing fetched from elsewhere
    server.py   binds, opens the browser, ends cleanly; app.py has the addresses, and what is refused at the door
    workers.py  the jobs, and processes that compute them with a time limit that really stops them
    reading.py, sheet.py, inputs.py, signal_flow.py, export.py  what the jobs compute
    training.py 'Try it': a study in its own process

The page holds no mathematics and the server no state of a page: every request says all it needs, and the address of the
page says all of it at once.
"""
