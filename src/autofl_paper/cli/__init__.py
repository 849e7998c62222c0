"""The commands `autofl reproduce` and `autofl analyze`: entry points of the group `autofl.commands`."""
