"""The express lane: hot endpoints are declared once and served without ASGI.

`message` has the request and the answer, `router` the declarations, `execution` the one way a handler is run,
`protocol` the lane itself, `stream` answers of any size, `body` bodies of any size, `asgi` the same endpoints as plain ASGI.
"""
