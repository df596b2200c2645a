"""The pictures of a report, as plain data and as ink."""
