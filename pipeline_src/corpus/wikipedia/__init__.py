"""From a dump of Wikipedia to clean prose."""
