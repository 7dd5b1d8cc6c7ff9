"""The page of a session: one HTML file that needs no network and no server.

``page`` fills ``templates/page.html.j2``, and packs the tensors of a test for the table that ``page.js``
makes of them; ``page.css`` is the style of both.
"""
