"""The workbench: one page on which an activation function is bent with the mouse.

    static/     the page: HTML, CSS and plain JavaScript, nothing fetched from elsewhere
    server.py   the addresses, what is refused at the door, the port and the browser, a clean end
    workers.py  the jobs, and processes that compute them with a time limit that really stops them
    reading.py, sheet.py, inputs.py, export.py  what the jobs compute
    training.py 'Try it': a study in its own process

The page holds no mathematics and the server no state of a page: every request says all it needs, and the address of the
page says all of it at once.
"""
