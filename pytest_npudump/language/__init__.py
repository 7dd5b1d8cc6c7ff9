"""What people read, in their language: English is in the code, a catalogue has the other.

``translation`` marks and translates what a report says, in the language that is spoken around it;
``sentences`` reads the files of ``catalogues/``, only once another language than English is spoken, and
knows again what errors, notes and reasons say, which were made in English; ``text`` lays text out for a
terminal, cuts it, and keeps names in it from being taken for commands.
"""
