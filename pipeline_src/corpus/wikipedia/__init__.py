"""From a dump of Wikipedia to clean prose (Beam)."""

import logging

# Beam says when it is imported that Google Cloud's libraries are missing; nothing here needs them.
logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("apitools not found"))
