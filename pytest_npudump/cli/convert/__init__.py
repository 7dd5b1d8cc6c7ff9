"""``npudump convert``: ``names`` says which file a tensor becomes, ``tasks`` writes it."""
