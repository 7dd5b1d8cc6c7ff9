"""What torch.utils has, without what is not used."""
