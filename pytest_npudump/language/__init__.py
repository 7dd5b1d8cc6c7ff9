"""What people read, in their language: English is in the code, a catalogue has the other.

``translation`` marks and translates what a report says, in the language that is spoken around it, and
takes the templates of errors, notes and reasons through JSON; ``catalogue`` reads the files of
``catalogues/``, only once another language than English is spoken; ``text`` lays text out for a terminal,
cuts it, and keeps names in it from being taken for commands.
"""
