"""Each probe measures one thing of a case and returns its fields."""
