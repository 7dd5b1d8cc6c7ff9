"""What people read, in their language: English is in the code, a catalogue has the other.

``translation`` marks and translates what a report says, in the language that is spoken around it;
``po_file`` reads the files of ``catalogues/``, and only once another language than English is spoken;
``sentences`` knows again what errors, notes and reasons say, which were made in English;
``text_width`` lays text out by the columns that it takes on a terminal, and ``excerpt`` is what a message
shows of much; ``inert`` keeps names from being taken for commands of a CI service, and ``shell`` spells
commands so that a shell takes names for nothing else.
"""
