"""Tables, charts and a summary from run files of any number of machines. Never imports torch."""
